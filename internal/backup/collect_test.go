// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

func TestValidate(t *testing.T) {
	one := resourcetypes.Type{
		GroupVersionResource: schema.GroupVersionResource{Group: "vendor.example.com", Version: "v1", Resource: "things"},
		Kind:                 "Thing",
	}
	for name, test := range map[string]struct {
		apiVersion, kind, namespace string
		wantErr                     bool
	}{
		"an object of the type":     {apiVersion: "vendor.example.com/v1", kind: "Thing", namespace: "x"},
		"another version":           {apiVersion: "vendor.example.com/v2", kind: "Thing", namespace: "x"},
		"another kind":              {apiVersion: "vendor.example.com/v1", kind: "Other", namespace: "x", wantErr: true},
		"the kind in another group": {apiVersion: "rbac.authorization.k8s.io/v1", kind: "Thing", namespace: "x", wantErr: true},
		"another namespace":         {apiVersion: "vendor.example.com/v1", kind: "Thing", namespace: "y", wantErr: true},
		"no namespace":              {apiVersion: "vendor.example.com/v1", kind: "Thing", wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{}
			object.SetAPIVersion(test.apiVersion)
			object.SetKind(test.kind)
			object.SetNamespace(test.namespace)
			if err := (&collector{namespace: "x"}).validate(one, object); (err != nil) != test.wantErr {
				t.Errorf("got error %v", err)
			}
		})
	}
}
