// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	namespaceUID = "namespace-uid"
	objectUID    = "object-uid"
)

var (
	configMaps = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	start      = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
)

func wantConfigMap(name, content string) *ObjectSnapshot {
	manifest := &unstructured.Unstructured{}
	manifest.SetGroupVersionKind(configMaps)
	manifest.SetName(name)
	manifest.SetNamespace("ns")
	return &ObjectSnapshot{Name: name, Manifest: manifest, Content: content}
}

func recordedConfigMap(name string) template.ObjectState {
	return template.ObjectState{
		Kind: configMaps.GroupKind(), Name: name, UID: objectUID, Content: "content", Fields: "fields",
	}
}

// snapshotOf returns a snapshot of an initialized Namespace.
func snapshotOf(state template.Record) Snapshot {
	return Snapshot{
		Namespace: wrappers.MakeNamespace("ns").UID(namespaceUID).Obj(), State: state, Now: start, ServerNow: start, Start: start, FullPassInterval: time.Hour,
	}
}

// respond answers a request; nil if the API server answers as in a Namespace in which objects have the UID objectUID
// and are as the operator has written them.
type respond func(Operation) *Response

// execute executes a plan. It returns the results and a text for each request.
func execute(p Plan, answer respond) (results []Result, sent []string) {
	for _, o := range p.Operations {
		if !o.IsReady(results) {
			results = append(results, Result{Err: ErrSkipped})
			continue
		}
		for !o.IsDone() {
			if sent = append(sent, requestText(o)); len(sent) > 100 {
				panic("the exchange does not end")
			}
			var response *Response
			if answer != nil {
				response = answer(o)
			}
			if response == nil {
				response = answered(o)
			}
			o = Next(o, *response)
		}
		results = append(results, o.Result)
	}
	return results, sent
}

// requestText describes a request, with everything that matters for its safety.
func requestText(o Operation) string {
	r := o.Request
	words := []string{string(r.Verb)}
	if r.Name != "" {
		words = append(words, r.Name)
	}
	for word, isTrue := range map[string]bool{"forced": r.IsForced, "dry": r.IsDryRun, "removal": r.IsRemoval, "account": r.MustFindAccount} {
		if isTrue {
			words = append(words, word)
		}
	}
	slices.Sort(words[min(len(words), 2):])
	if r.UID != "" {
		words = append(words, "uid="+string(r.UID))
	}
	version := r.ResourceVersion
	if r.Manifest != nil {
		version += r.Manifest.GetResourceVersion()
	}
	if version != "" {
		words = append(words, "version="+version)
	}
	for _, kind := range []string{template.KindLabel.Kind, template.KindAnnotation.Kind} {
		for _, key := range slices.Sorted(maps.Keys(r.Changes.Of(kind))) {
			value := "-"
			if changed := r.Changes.Of(kind)[key]; changed != nil {
				value = *changed
			}
			words = append(words, key+"="+value)
		}
	}
	if manager := template.FieldManager(o.Template.Name); r.FieldManager != "" && r.FieldManager != manager {
		words = append(words, "as="+strings.TrimPrefix(r.FieldManager, template.FieldManagerPrefix))
	}
	return strings.Join(words, " ")
}

// metadataOfObject returns the metadata of an object that a template has applied.
func metadataOfObject(name, templateName string, uid types.UID, change ...func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: uid, ResourceVersion: "5", Labels: map[string]string{v1alpha1.LabelManagedByTemplate: templateName},
		Annotations: map[string]string{v1alpha1.AnnotationNamespaceUID: namespaceUID},
		ManagedFields: []metav1.ManagedFieldsEntry{
			entryOf(template.FieldManager(templateName), metav1.ManagedFieldsOperationApply, "", "{}"),
		},
	}}
	for _, c := range change {
		c(object)
	}
	return object
}

func answered(o Operation) *Response {
	metadata := metadataOfObject(o.Request.Name, o.Template.Name, objectUID)
	switch o.Request.Verb {
	case Find:
		if o.removed == nil && o.step != findMarked {
			return &Response{}
		}
		return &Response{Metadata: metadata}
	case Apply:
		return &Response{Metadata: metadata, Object: o.Request.Manifest.DeepCopy(), IsCreated: true}
	case Read:
		return &Response{Metadata: metadata, Object: o.manifest()}
	case Confirm:
		return &Response{Namespace: o.Namespace.DeepCopy(), Template: o.Template.DeepCopy()}
	case SetMetadata:
		return &Response{Metadata: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: "9", Labels: o.Request.Changes.applied("Label", o.Namespace.Labels),
			Annotations: o.Request.Changes.applied("Annotation", o.Namespace.Annotations),
		}}}
	}
	return &Response{Metadata: metadata, IsGone: true, IsUncounted: true}
}

// applied returns labels or annotations after the changes.
func (m MetadataChanges) applied(kind string, values map[string]string) map[string]string {
	changed := maps.Clone(values)
	if changed == nil {
		changed = map[string]string{}
	}
	for key, value := range m.Of(kind) {
		if delete(changed, key); value != nil {
			changed[key] = *value
		}
	}
	return changed
}

// pass performs a whole pass.
func pass(s Snapshot, memory Memory, answer respond) (Outcome, Memory, []string) {
	p := Compute(s, memory)
	results, sent := execute(p, answer)
	outcome, memory := Conclude(p, results)
	return outcome, memory, sent
}

// failing answers the requests with a verb for objects with a name with an error.
func failing(verb Verb, name string, err error) respond {
	return func(o Operation) *Response {
		if o.Request.Verb == verb && (name == "" || o.Request.Name == name) {
			return &Response{Err: err}
		}
		return nil
	}
}

// describeState returns the revision, the target and the objects of each template in a state.
func describeState(state template.Record) []string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(state)) {
		text := fmt.Sprintf("%s %s>%s", name, state[name].Revision, state[name].Target)
		var names []string
		for _, object := range state[name].Objects {
			names = append(names, object.Name)
		}
		slices.Sort(names)
		texts = append(texts, fmt.Sprint(text, names))
	}
	return texts
}

func reasonsOf(problems []template.Problem) (reasons []string) {
	for _, found := range problems {
		reasons = append(reasons, found.Reason)
	}
	return reasons
}

// versioned returns the object "one" with a resourceVersion.
func versioned(version string) *unstructured.Unstructured {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{UID: namespaceUID}}
	manifest := template.WithOwnMetadata("a", namespace, wantConfigMap("one", "").Manifest, false)
	manifest.SetResourceVersion(version)
	return manifest
}
