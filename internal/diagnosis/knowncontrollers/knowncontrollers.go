// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package knowncontrollers

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"
)

//go:embed data/*.yaml
var files embed.FS

// All returns all controllers, in a fixed order. The caller must not change them.
var All = sync.OnceValue(func() []Controller {
	controllers, err := decode()
	if err != nil {
		panic(err) // The data is part of the program, and a unit test decodes it.
	}
	return controllers
})

func decode() ([]Controller, error) {
	entries, err := files.ReadDir("data")
	if err != nil {
		return nil, fmt.Errorf("failed to list the known controllers: %w", err)
	}
	var result []Controller
	for _, entry := range entries {
		data, err := files.ReadFile("data/" + entry.Name())
		if err != nil {
			return nil, fmt.Errorf("failed to read the known controllers: %w", err)
		}
		var controllers []Controller
		if err := yaml.UnmarshalStrict(data, &controllers); err != nil {
			return nil, fmt.Errorf("failed to decode the known controllers in %s: %w", entry.Name(), err)
		}
		result = append(result, controllers...)
	}
	return result, nil
}

// ByFinalizer returns the controller that removes a finalizer from objects of a type, such as
// deployments.apps. Many projects use one finalizer for the types of several controllers, so that the
// finalizer alone does not identify the controller. If the type is unknown, resource is empty: ok is
// then false unless all controllers with the finalizer are the same.
func ByFinalizer(finalizer, resource string) (_ *Controller, _ *Finalizer, ok bool) {
	// A name is more specific than a prefix, and a list of types more specific than all types.
	for _, matches := range []func(*Finalizer) bool{
		func(f *Finalizer) bool { return f.Name == finalizer && f.isOn(resource) },
		func(f *Finalizer) bool { return f.hasPrefixOf(finalizer) && f.isOn(resource) },
		func(f *Finalizer) bool { return f.Name == finalizer && f.canBeOn(resource) },
		func(f *Finalizer) bool { return f.hasPrefixOf(finalizer) && f.canBeOn(resource) },
	} {
		controller, found, isAmbiguous := find(matches)
		if controller != nil {
			return controller, found, !isAmbiguous
		}
	}
	return nil, nil, false
}

// find returns the first controller with a matching finalizer, and whether another controller has one.
func find(matches func(*Finalizer) bool) (controller *Controller, finalizer *Finalizer, isAmbiguous bool) {
	all := All()
	for i := range all {
		at := slices.IndexFunc(all[i].Finalizers, func(f Finalizer) bool { return matches(&f) })
		switch {
		case at < 0:
		case controller != nil:
			isAmbiguous = true
		default:
			controller, finalizer = &all[i], &all[i].Finalizers[at]
		}
	}
	return controller, finalizer, isAmbiguous
}

func (f *Finalizer) hasPrefixOf(finalizer string) bool {
	return f.Prefix != "" && strings.HasPrefix(finalizer, f.Prefix)
}

func (f *Finalizer) isOn(resource string) bool {
	return slices.ContainsFunc(f.Resources, func(r Resource) bool { return r.Name == resource })
}

// canBeOn reports whether the finalizer can be on objects of a type that the data does not contain.
func (f *Finalizer) canBeOn(resource string) bool {
	return resource == "" || len(f.Resources) == 0 || f.HasMoreResources
}
