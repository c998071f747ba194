// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

const messageDecodeRevision = "failed to decode revision %d: %w"

// revisionFields are the fields of template.Content.
var revisionFields = []string{"parameters", "variables", "metadata", "objectMetadata", "objects"}

// Revision is a stored revision of a NamespaceTemplate.
type Revision struct {
	// Number orders the revisions.
	Number int64
	// Name is the revision in the status of the template.
	Name    string
	Created metav1.Time
	content []byte
}

// Revisions returns the stored revisions of a NamespaceTemplate, oldest first.
func Revisions(object *v1alpha1.NamespaceTemplate, stored []appsv1.ControllerRevision) []Revision {
	var revisions []Revision
	for i := range stored {
		name, ok := strings.CutPrefix(stored[i].Name, object.Name+"-")
		// A deleted template with the same name can still have revisions.
		if ok && metav1.IsControlledBy(&stored[i], object) {
			revisions = append(revisions, Revision{
				Number: stored[i].Revision, Name: name, Created: stored[i].CreationTimestamp, content: stored[i].Data.Raw,
			})
		}
	}
	slices.SortFunc(revisions, func(a, b Revision) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Name, b.Name))
	})
	return revisions
}

// IsObserved reports whether the status of a NamespaceTemplate describes its spec.
func IsObserved(object *v1alpha1.NamespaceTemplate) bool {
	return object.Status.ObservedGeneration == object.Generation
}

// SpecRevision returns the revision of the spec of a NamespaceTemplate. The operator's API can have more
// fields than that of the plugin, so the revision in the status is preferred.
func SpecRevision(object *v1alpha1.NamespaceTemplate) string {
	if IsObserved(object) {
		return object.Status.UpdateRevision
	}
	return template.Revision(&object.Spec)
}

// FindRevision returns the revision with the given number.
func FindRevision(object *v1alpha1.NamespaceTemplate, revisions []Revision, number int64) (*Revision, error) {
	at := slices.IndexFunc(revisions, func(revision Revision) bool { return revision.Number == number })
	if at < 0 {
		return nil, fmt.Errorf("revision %d of NamespaceTemplate %q not found", number, object.Name)
	}
	return &revisions[at], nil
}

// UndoTarget returns the revision to which a NamespaceTemplate is rolled back: the given one, or, if the
// number is 0, the one that new Namespaces get, or the one before that of the spec.
func UndoTarget(object *v1alpha1.NamespaceTemplate, revisions []Revision, number int64) (*Revision, error) {
	inSpec, current := SpecRevision(object), object.Status.CurrentRevision
	withName := func(name string) int {
		return slices.IndexFunc(revisions, func(revision Revision) bool { return revision.Name == name })
	}
	if number == 0 && current != "" && current != inSpec {
		if at := withName(current); at >= 0 {
			return &revisions[at], nil
		}
		return nil, fmt.Errorf("revision %s of NamespaceTemplate %q, which new namespaces get, is not stored", current,
			object.Name)
	}
	if number == 0 {
		at := withName(inSpec)
		if at < 0 {
			at = len(revisions) // The spec is invalid, or the operator has not stored it yet.
		}
		if at == 0 {
			return nil, fmt.Errorf("NamespaceTemplate %q has no earlier revision", object.Name)
		}
		return &revisions[at-1], nil
	}
	target, err := FindRevision(object, revisions, number)
	if err == nil && target.Name == inSpec {
		return nil, fmt.Errorf("NamespaceTemplate %q already has revision %d", object.Name, number)
	}
	return target, err
}

// UndoPatch returns the JSON patch that writes the revision into the spec of a NamespaceTemplate, unless its spec has
// changed. It also contains fields of objects that the plugin does not know.
func (r *Revision) UndoPatch(object *v1alpha1.NamespaceTemplate) ([]byte, error) {
	stored, err := r.fields()
	if err != nil {
		return nil, err
	}
	operation := func(name, path string, value any) map[string]any {
		return map[string]any{"op": name, "path": path, "value": value}
	}
	operations := []map[string]any{
		operation("test", "/metadata/uid", object.UID), operation("test", "/metadata/generation", object.Generation),
	}
	for _, field := range revisionFields { // The API server removes a field whose value is null.
		operations = append(operations, operation("add", "/spec/"+field, stored[field]))
	}
	return json.Marshal(operations)
}

// Write writes the content of the revision as YAML.
func (r *Revision) Write(out io.Writer) error {
	if _, err := r.fields(); err != nil {
		return err
	}
	document, err := printer.YAML(r.content)
	if err == nil {
		_, err = out.Write(document)
	}
	return err
}

func (r *Revision) fields() (map[string]json.RawMessage, error) {
	var stored map[string]json.RawMessage
	if err := json.Unmarshal(r.content, &stored); err != nil {
		return nil, fmt.Errorf(messageDecodeRevision, r.Number, err)
	}
	if len(stored["objects"]) == 0 {
		return nil, fmt.Errorf(messageDecodeRevision, r.Number, errors.New("it contains no objects"))
	}
	return stored, nil
}
