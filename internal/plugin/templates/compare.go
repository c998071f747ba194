// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// Change is what a template does to an object or a Namespace.
type Change string

// The changes, in the order in which they are printed.
const (
	Failed    Change = "Failed"
	Changed   Change = "Changed"
	Created   Change = "Created"
	Deleted   Change = "Deleted"
	Unchanged Change = "Unchanged"
)

// order is the order of changes.
var order = []Change{Failed, Changed, Created, Deleted, Unchanged}

// Comparison is what a template would change in a cluster.
type Comparison struct {
	Template string `json:"template"`
	// Revision is the revision of the template, and Current that of the template in the cluster; empty if
	// there is none.
	Revision string `json:"revision"`
	Current  string `json:"currentRevision,omitempty"`
	// Namespaces and Objects are numbers by change.
	Namespaces map[Change]int `json:"namespaces"`
	Objects    map[Change]int `json:"objects"`
	// Existing is the number of selected Namespaces to which the template does not extend, because they
	// are older. Unselected is the number of Namespaces that keep their objects although the template no
	// longer selects them.
	Existing   int `json:"existing"`
	Unselected int `json:"unselected"`
	// Items are the Namespaces that change, sorted by change and name.
	Items []NamespaceChange `json:"items"`
}

// NamespaceChange is what a template changes in a Namespace.
type NamespaceChange struct {
	Namespace string `json:"namespace"`
	Change    Change `json:"change"`
	// Message is why the template fails in the Namespace.
	Message string `json:"message,omitempty"`
	// Objects are the objects that change.
	Objects []ObjectChange `json:"objects,omitempty"`

	namespace *corev1.Namespace
}

// ObjectChange is what a template changes in an object.
type ObjectChange struct {
	// Object is the name of the object in the template.
	Object     string `json:"object"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Change     Change `json:"change"`
	// Message describes a failure, or why there are no fields.
	Message string `json:"message,omitempty"`
	// Fields are the fields that change, if they are known.
	Fields []FieldChange `json:"fields,omitempty"`

	rendered *render.Object
}

// key identifies an object in a Namespace.
type key struct {
	kind schema.GroupKind
	name string
}

func keyOf(apiVersion, kind, name string) key {
	return key{kind: schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind(), name: name}
}

func (o ObjectChange) key() key { return keyOf(o.APIVersion, o.Kind, o.Name) }

// Compare returns what a template would change in Namespaces. current is the template in the cluster, or
// nil. Whether an object changes follows from what its Namespace records, as in the operator; current is
// required only for copies and for the fields that change.
func Compare(ctx context.Context, changed, current *Template, namespaces []corev1.Namespace) *Comparison {
	c := &comparer{changed: changed, current: current, result: &Comparison{
		Template: changed.Name, Revision: changed.Revision(),
		Namespaces: map[Change]int{}, Objects: map[Change]int{}, Items: []NamespaceChange{},
	}}
	if current != nil {
		c.result.Current = current.Revision()
	}
	for _, change := range order {
		c.result.Namespaces[change], c.result.Objects[change] = 0, 0
	}
	for i := range namespaces {
		if namespaces[i].DeletionTimestamp == nil {
			c.compare(ctx, &namespaces[i])
		}
	}
	slices.SortFunc(c.result.Items, func(a, b NamespaceChange) int {
		return cmp.Or(slices.Index(order, a.Change)-slices.Index(order, b.Change), strings.Compare(a.Namespace, b.Namespace))
	})
	return c.result
}

type comparer struct {
	changed, current *Template
	result           *Comparison
}

// compare adds a Namespace to the result.
func (c *comparer) compare(ctx context.Context, namespace *corev1.Namespace) {
	change := NamespaceChange{Namespace: namespace.Name, namespace: namespace}
	state, err := template.ParseState(namespace)
	if err != nil {
		if template.Selects(c.changed.NamespaceTemplate, namespace) {
			c.fail(change, fmt.Sprintf(msgUnreadable, err))
		}
		return
	}
	recorded, isRecorded := state[c.changed.Name]
	spec := &c.changed.Spec
	switch applies := template.Applies(c.changed.NamespaceTemplate, namespace, state); {
	case !applies && !isRecorded:
		if template.Selects(c.changed.NamespaceTemplate, namespace) {
			c.result.Existing++
		}
		return
	case !applies && spec.Removal.OnUnmatch != v1alpha1.RemovalPrune:
		c.result.Unselected++
		return
	case !applies:
		change.Objects = c.deleted(state, nil)
	case recorded.Revision != "" && spec.Sync.Mode == v1alpha1.SyncOnce && !template.IsInitializedHere(namespace):
		change.Objects = kept(recorded)
	default:
		objects, err := c.objects(ctx, namespace, state)
		if err != nil {
			c.fail(change, err.Error())
			return
		}
		change.Objects = objects
	}
	c.add(change, isRecorded)
}

func (c *comparer) fail(change NamespaceChange, message string) {
	change.Change, change.Message = Failed, message
	c.result.Namespaces[Failed]++
	c.result.Items = append(c.result.Items, change)
}

// add adds a Namespace and its objects to the result.
func (c *comparer) add(change NamespaceChange, isRecorded bool) {
	counts := map[Change]int{}
	for _, object := range change.Objects {
		counts[object.Change]++
		c.result.Objects[object.Change]++
	}
	switch total := len(change.Objects); {
	case counts[Failed] > 0:
		change.Change = Failed
	case counts[Unchanged] == total:
		change.Change = Unchanged
	case !isRecorded:
		change.Change = Created
	case counts[Deleted] == total:
		change.Change = Deleted
	default:
		change.Change = Changed
	}
	c.result.Namespaces[change.Change]++
	if change.Change == Unchanged {
		return
	}
	isUnchanged := func(object ObjectChange) bool { return object.Change == Unchanged }
	change.Objects = slices.DeleteFunc(change.Objects, isUnchanged)
	c.result.Items = append(c.result.Items, change)
}

// objects returns the changes of all objects in a Namespace to which the template applies.
func (c *comparer) objects(
	ctx context.Context, namespace *corev1.Namespace, state template.State,
) ([]ObjectChange, error) {
	recorded := state[c.changed.Name]
	rendered, err := c.changed.Render(ctx, namespace)
	if err != nil {
		return nil, err
	}
	before := c.before(ctx, namespace)
	var changes []ObjectChange
	wanted := map[key]bool{}
	for i := range rendered {
		if rendered[i].When == v1alpha1.TemplateAfterOpen && template.IsInitializedHere(namespace) {
			continue
		}
		manifest := manifestOf(rendered[i], namespace.Name)
		change := ObjectChange{
			Object: rendered[i].Name, APIVersion: manifest.GetAPIVersion(), Kind: manifest.GetKind(),
			Name: manifest.GetName(), rendered: &rendered[i],
		}
		wanted[change.key()] = true
		old, ok := before[change.key()]
		change.Change = compareObject(&rendered[i], findRecorded(recorded, change.key()), old, ok)
		switch other := claimedBy(state, c.changed.Name, change.key()); {
		case other != "" && change.Change == Created:
			change.Change, change.Message = Failed, fmt.Sprintf(msgClaimed, other)
		case change.Change == Changed && rendered[i].Copy != nil:
			change.Message = msgCopyNotShown
		case change.Change == Changed && ok && old.Manifest != nil:
			change.Fields = compareFields(change.Kind, old.Manifest.Object, manifest.Object)
		}
		changes = append(changes, change)
	}
	// The operator deletes nothing if the template contains no object.
	if c.changed.Spec.Removal.FromTemplate != v1alpha1.RemovalKeep && len(wanted) > 0 {
		changes = append(changes, c.deleted(state, wanted)...)
	}
	return changes, nil
}

// before returns the objects that the template in the cluster renders for a Namespace.
func (c *comparer) before(ctx context.Context, namespace *corev1.Namespace) map[key]render.Object {
	found := map[key]render.Object{}
	if c.current == nil {
		return found
	}
	// If it fails, the fields are not known.
	objects, _ := c.current.Render(ctx, namespace)
	for _, object := range objects {
		manifest := manifestOf(object, namespace.Name)
		found[keyOf(manifest.GetAPIVersion(), manifest.GetKind(), manifest.GetName())] = object
	}
	return found
}

// compareObject returns the change of an object. before is the object that the template in the cluster
// renders.
func compareObject(
	rendered *render.Object, recorded *template.ObjectState, before render.Object, hasBefore bool,
) Change {
	switch {
	case recorded == nil:
		return Created
	case rendered.Copy == nil && recorded.Content == template.ObjectContent(rendered.Manifest, rendered.Locked):
		return Unchanged
	case rendered.Copy != nil && hasBefore && before.Copy != nil && *before.Copy == *rendered.Copy &&
		before.Locked == rendered.Locked:
		// The hash of a copy identifies the version of the source, which the operator follows in any case.
		return Unchanged
	}
	return Changed
}

func findRecorded(state template.Entry, wanted key) *template.ObjectState {
	index := slices.IndexFunc(state.Objects, func(object template.ObjectState) bool { return stateKey(object) == wanted })
	if index < 0 {
		return nil
	}
	return &state.Objects[index]
}

func stateKey(object template.ObjectState) key {
	return keyOf(object.APIVersion, object.Kind, object.ObjectName)
}

// claimedBy returns another template that the Namespace contains and that contains the object.
func claimedBy(state template.State, name string, wanted key) string {
	for _, other := range slices.Sorted(maps.Keys(state)) {
		if other != name && findRecorded(state[other], wanted) != nil {
			return other
		}
	}
	return ""
}

// deleted returns the recorded objects that the operator deletes, because they are not wanted. It never
// deletes adopted objects and objects of another template.
func (c *comparer) deleted(state template.State, wanted map[key]bool) []ObjectChange {
	var changes []ObjectChange
	for _, object := range state[c.changed.Name].Objects {
		key := stateKey(object)
		if !wanted[key] && !object.IsAdopted && claimedBy(state, c.changed.Name, key) == "" {
			changes = append(changes, recordedChange(object, Deleted))
		}
	}
	return changes
}

func kept(recorded template.Entry) []ObjectChange {
	changes := make([]ObjectChange, 0, len(recorded.Objects))
	for _, object := range recorded.Objects {
		changes = append(changes, recordedChange(object, Unchanged))
	}
	return changes
}

func recordedChange(object template.ObjectState, change Change) ObjectChange {
	return ObjectChange{
		Object: object.Name, APIVersion: object.APIVersion, Kind: object.Kind, Name: object.ObjectName, Change: change,
	}
}
