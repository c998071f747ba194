// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/backup"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// WriteFor renders the template for a Namespace and writes the objects as YAML documents. Comments name
// each object in the template, and the source of a copy.
func (t *Template) WriteFor(ctx context.Context, out io.Writer, namespace *corev1.Namespace) error {
	objects, err := t.Render(ctx, namespace)
	if err != nil {
		return err
	}
	for _, object := range objects {
		encoded, err := json.Marshal(manifestOf(object, namespace.Name).Object)
		if err == nil {
			encoded, err = backup.YAML(encoded)
		}
		if err != nil {
			return fmt.Errorf("failed to encode object %s: %w", object.Name, err)
		}
		if _, err := fmt.Fprintf(out, "---\n%s%s", comment(object), encoded); err != nil {
			return fmt.Errorf("failed to write object %s: %w", object.Name, err)
		}
	}
	return nil
}

// manifestOf returns the manifest of an object. That of a copy has no data.
func manifestOf(object render.Object, namespace string) *unstructured.Unstructured {
	if object.Copy == nil {
		return object.Manifest
	}
	manifest := &unstructured.Unstructured{Object: map[string]any{}}
	manifest.SetAPIVersion(object.Copy.APIVersion)
	manifest.SetKind(object.Copy.Kind)
	manifest.SetName(object.Copy.Name)
	manifest.SetNamespace(namespace)
	return manifest
}

func comment(object render.Object) string {
	text := "# Object " + printable.Quote(object.Name)
	if object.When == v1alpha1.TemplateAfterOpen {
		text += ", created after the namespace opens"
	}
	if object.Locked {
		text += ", locked"
	}
	text += ".\n"
	if object.Copy != nil {
		text += fmt.Sprintf("# A copy of %s %s in namespace %s.\n", printable.Escape(object.Copy.Kind),
			printable.Quote(object.Copy.Name), printable.Quote(object.Copy.Namespace))
	}
	return text
}
