// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/verify"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// requirement describes resources that the API server must serve.
type requirement struct {
	groupVersion schema.GroupVersion
	resources    []string
	remedy       string
}

func requirements() []requirement {
	return []requirement{{
		groupVersion: v1alpha1.GroupVersion,
		resources:    []string{"namespaceinitializerconfigurations"},
		remedy:       messageInstallDefinitions,
	}, {
		groupVersion: internalv1alpha1.GroupVersion,
		resources:    []string{"namespaceinitializersets"},
		remedy:       messageInstallDefinitions,
	}, {
		groupVersion: admissionv1.SchemeGroupVersion,
		resources:    []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"},
		remedy:       messageUpgradeServer,
	}}
}

// Preflight returns an error with a remedy if the API server does not serve a type that initialization requires.
// Finalization works with any API server.
func Preflight(ctx context.Context, client discovery.DiscoveryInterfaceWithContext) error {
	for _, required := range requirements() {
		missing, err := verify.MissingResources(ctx, client, required.groupVersion, required.resources...)
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			return fmt.Errorf("the API server does not serve %s in %s: %s",
				strings.Join(missing, ", "), required.groupVersion, required.remedy)
		}
	}
	return nil
}
