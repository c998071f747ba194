// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

// Template is a valid NamespaceTemplate.
type Template struct {
	*v1alpha1.NamespaceTemplate
	program *render.Program
}

// Compile compiles the expressions of a NamespaceTemplate.
func Compile(object *v1alpha1.NamespaceTemplate) (*Template, error) {
	program, errs := render.Compile(&object.Spec)
	if len(errs) == 0 {
		return &Template{NamespaceTemplate: object, program: program}, nil
	}
	messages := make([]string, 0, len(errs))
	for _, err := range errs {
		message, index := err.Error(), -1
		_, _ = fmt.Sscanf(err.Field, "spec.objects[%d]", &index)
		if index >= 0 && index < len(object.Spec.Objects) {
			message = fmt.Sprintf("object %s: %s", object.Spec.Objects[index].Name, message)
		}
		messages = append(messages, message)
	}
	return nil, invalid(object.Name, messages)
}

func invalid(name string, messages []string) error {
	return fmt.Errorf("NamespaceTemplate %q is invalid:\n%s", name, strings.Join(messages, "\n"))
}

// Revision returns the revision of the template.
func (t *Template) Revision() string { return template.Revision(&t.Spec) }

// Render returns the objects of the template for a Namespace, in the order in which they are applied.
func (t *Template) Render(ctx context.Context, namespace *corev1.Namespace) ([]render.Object, error) {
	parameters, err := render.ResolveParameters(t.Spec.Parameters, namespace)
	if err != nil {
		return nil, err
	}
	objects, err := t.program.Render(ctx, render.Input{
		Namespace: namespace, Parameters: parameters,
		RequestedBy: namespace.Annotations[v1alpha1.AnnotationRequestedBy],
	})
	isLate := func(object render.Object) bool { return object.When == v1alpha1.NamespaceStateInitialized }
	late := slices.Clone(objects)
	late = slices.DeleteFunc(late, func(object render.Object) bool { return !isLate(object) })
	return append(slices.DeleteFunc(objects, isLate), late...), err
}

// CheckSelected returns an error if the template does not select a Namespace.
func (t *Template) CheckSelected(namespace *corev1.Namespace) error {
	reason := "the namespace is exempt"
	if !slices.Contains(initialization.RequiredNamespaces, namespace.Name) {
		if template.Selects(t.NamespaceTemplate, namespace) {
			return nil
		}
		reason = template.ComputeMatch(t.NamespaceTemplate, namespace, template.Record{}, nil).Reason
	}
	return fmt.Errorf("template %q does not select namespace %q: %s", t.Name, namespace.Name, reason)
}

// SetParameters sets parameters on a Namespace: annotations, or the labels that the template names.
func (t *Template) SetParameters(namespace *corev1.Namespace, values map[string]string) error {
	var errs []error
	names := make([]string, 0, len(t.Spec.Parameters))
	for _, parameter := range t.Spec.Parameters {
		names = append(names, parameter.Name)
		switch value, ok := values[parameter.Name]; {
		case !ok:
		case parameter.LabelKey != "":
			metav1.SetMetaDataLabel(&namespace.ObjectMeta, parameter.LabelKey, value)
		default:
			metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, v1alpha1.PrefixParameter+parameter.Name, value)
		}
	}
	for name := range values {
		if !slices.Contains(names, name) {
			errs = append(errs, fmt.Errorf("template %q has no parameter %s; its parameters: %s", t.Name, name,
				strings.Join(names, ", ")))
		}
	}
	return errors.Join(errs...)
}

// parameterName is the pattern of the names of parameters in the API.
var parameterName = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)

// ParseParameters parses arguments of the form NAME=VALUE.
func ParseParameters(arguments []string) (map[string]string, error) {
	values := map[string]string{}
	for _, argument := range arguments {
		name, value, ok := strings.Cut(argument, "=")
		if !ok || !parameterName.MatchString(name) {
			return nil, fmt.Errorf("invalid parameter %q; must be NAME=VALUE, and NAME must consist of letters and digits",
				argument)
		}
		if _, ok := values[name]; ok {
			return nil, fmt.Errorf("the parameter %s is given more than once", name)
		}
		values[name] = value
	}
	return values, nil
}

// WriteFor renders the template for a Namespace and writes the objects as YAML documents. Comments name
// each object in the template, and the source of a copy.
func (t *Template) WriteFor(ctx context.Context, out io.Writer, namespace *corev1.Namespace) error {
	objects, err := t.Render(ctx, namespace)
	if err == nil {
		err = t.writeMetadata(out, namespace)
	}
	for _, object := range objects {
		if err == nil {
			err = writeDocument(out, comment(object), object.Manifest.Object)
		}
	}
	return err
}

// writeMetadata writes the labels and annotations that the template sets on a Namespace.
func (t *Template) writeMetadata(out io.Writer, namespace *corev1.Namespace) error {
	labels, annotations := templateset.Values(&t.Spec)
	requestedBy := namespace.Annotations[v1alpha1.AnnotationRequestedBy]
	metadata := map[string]any{"name": namespace.Name}
	for key, values := range map[string][]internalv1alpha1.EffectiveValue{"labels": labels, "annotations": annotations} {
		if set := templateset.Evaluate(values, namespace, requestedBy); len(set) > 0 {
			metadata[key] = set
		}
	}
	if len(metadata) == 1 {
		return nil
	}
	text := "# Labels and annotations of the namespace"
	if t.Spec.Metadata.Lock == v1alpha1.LockAll {
		text += ", locked"
	}
	return writeDocument(out, text+".\n", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
}

func writeDocument(out io.Writer, comment string, manifest map[string]any) error {
	encoded, err := json.Marshal(manifest)
	if err == nil {
		encoded, err = printer.YAML(encoded)
	}
	if err == nil {
		_, err = fmt.Fprintf(out, "---\n%s%s", comment, encoded)
	}
	return err
}

func comment(object render.Object) string {
	text := "# Object " + printable.Quote(object.Name)
	if object.When == v1alpha1.NamespaceStateInitialized {
		text += ", created after the initialization"
	}
	if object.Locked {
		text += ", locked"
	}
	text += ".\n"
	if object.IsCopy {
		text += fmt.Sprintf("# A copy of %s %s in the source namespace.\n", object.Manifest.GetKind(),
			printable.Quote(object.Manifest.GetName()))
	}
	return text
}
