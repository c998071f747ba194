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

// PauseAnnotations returns the annotations with which one of the controllers ignores an object.
func PauseAnnotations() []Setting {
	var annotations []Setting
	all := All()
	for i := range all {
		for _, pause := range all[i].Pauses {
			if pause.Annotation != "" && !slices.Contains(annotations, pause) {
				annotations = append(annotations, pause)
			}
		}
	}
	return annotations
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

// Controller is a controller, or a group of controllers that run in one process.
type Controller struct {
	// Name is a noun phrase that fits into a sentence.
	Name string `json:"name"`
	// Project is the GitHub repository of the controller. Version is the commit that the facts were
	// read from.
	Project string `json:"project"`
	Version string `json:"version"`
	// Sources are the paths in the repository that the facts were read from, by the name of the field.
	// A source in another repository has the form OWNER/NAME@COMMIT:PATH.
	Sources map[string]string `json:"sources"`
	// Outside reports whether the controller can run outside the cluster, at a cloud provider. If it has
	// no workloads, it never runs in the cluster.
	Outside bool `json:"outside,omitempty"`
	// Finalizers are the finalizers that the controller removes.
	Finalizers []Finalizer `json:"finalizers"`
	// Namespaces are the namespaces in which the controller runs by default.
	Namespaces []string `json:"namespaces,omitempty"`
	// Workloads are the workloads of the controller that remove the finalizers.
	Workloads []Workload `json:"workloads,omitempty"`
	// FieldManagers are the names of the controller in managedFields.
	FieldManagers []string `json:"fieldManagers,omitempty"`
	// CRDLabels are labels of its CustomResourceDefinitions that name the project.
	CRDLabels map[string]string `json:"crdLabels,omitempty"`
	// Permissions are the permissions to change the objects with the finalizers.
	Permissions Permissions `json:"permissions,omitzero"`
	// Pauses are settings of an object with which the controller also ignores the deletion of the
	// object. Settings that the controller ignores during a deletion, such as spec.suspend of Flux, are
	// not among them.
	Pauses []Setting `json:"pauses,omitempty"`
	// Failures are the ways in which the controller publishes that the deletion of an object fails.
	Failures []Failure `json:"failures,omitempty"`
}

// IsFailure reports whether the controller publishes that a deletion fails in a condition with this type
// and status.
func (c *Controller) IsFailure(conditionType, status string) bool {
	return slices.ContainsFunc(c.Failures, func(failure Failure) bool {
		return failure.Condition != "" && failure.Condition == conditionType &&
			(failure.Status == "" || failure.Status == status)
	})
}

// Finalizer is a finalizer on objects of some types.
type Finalizer struct {
	// Name is the finalizer. If it is empty, Prefix is the start of the finalizer.
	Name   string `json:"name,omitempty"`
	Prefix string `json:"prefix,omitempty"`
	// Resources are the types of the objects with the finalizer. If HasMoreResources is true or the list
	// is empty, objects of other types can have the finalizer too.
	Resources        []Resource `json:"resources,omitempty"`
	HasMoreResources bool       `json:"hasMoreResources,omitempty"`
	// Loss is a sentence that states what remains if the finalizer is removed by force.
	Loss string `json:"loss"`
}

// Resource is a type of objects.
type Resource struct {
	// Name is the resource and its API group, such as deployments.apps.
	Name string `json:"name"`
	Kind string `json:"kind"`
	// ClusterScoped reports whether the objects have no namespace.
	ClusterScoped bool `json:"clusterScoped,omitempty"`
}

// Workload is a workload as the project installs it by default.
type Workload struct {
	// Kind is Deployment, StatefulSet, DaemonSet or Pod.
	Kind string `json:"kind"`
	// Name is the default name. It is empty if the name contains the name of another object.
	Name string `json:"name,omitempty"`
	// Labels are the labels of the pods that identify the controller in all installations.
	Labels map[string]string `json:"labels"`
	// ServiceAccount is the default name of the ServiceAccount of the pods.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// Image is the last part of the name of the image.
	Image string `json:"image,omitempty"`
}

// Permissions are the permissions of a controller.
type Permissions struct {
	// Wildcard reports whether the controller has all permissions for all types.
	Wildcard bool `json:"wildcard,omitempty"`
	// Groups and Resources are the types that the controller can change. An item can be "*".
	Groups    []string `json:"groups,omitempty"`
	Resources []string `json:"resources,omitempty"`
}

// Setting is an annotation, a label or a field of an object.
type Setting struct {
	Annotation string `json:"annotation,omitempty"`
	Label      string `json:"label,omitempty"`
	Field      string `json:"field,omitempty"`
	// Value is the value of the setting. If it is empty, all values have the effect.
	Value string `json:"value,omitempty"`
}

// HasEffect reports whether a value of the setting has the effect.
func (s *Setting) HasEffect(value string) bool { return s.Value == "" || s.Value == value }

// Failure is a condition, an Event of type Warning, or a field of the status. Message is an example.
type Failure struct {
	// Condition is the type of the condition. Status and Reason can be empty.
	Condition string `json:"condition,omitempty"`
	Status    string `json:"status,omitempty"`
	// Reason is the reason of the condition or of the Event.
	Reason string `json:"reason,omitempty"`
	// IsEvent reports whether the failure is an Event.
	IsEvent bool `json:"event,omitempty"`
	// Field is the field of the object that contains the message, such as status.message.
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}
