// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

// Change is what a template does to an object or a Namespace.
type Change string

// The changes, in the order in which they are printed.
const (
	Failed Change = "Failed"
	// LikelyFailed was not tried, and fails in all Namespaces that were.
	LikelyFailed Change = "LikelyFailed"
	Changed      Change = "Changed"
	Created      Change = "Created"
	// Adopted is an object that exists, and that the operator adopts. Its fields change if it has any.
	Adopted Change = "Adopted"
	// Replaced is an object that the operator deletes and creates again.
	Replaced  Change = "Replaced"
	Deleted   Change = "Deleted"
	Unchanged Change = "Unchanged"
)

var order = []Change{Failed, LikelyFailed, Changed, Replaced, Created, Adopted, Deleted, Unchanged}

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
	// Tried is the number of Items whose objects were all applied as dry runs. What happens in the others is inferred from
	// what Namespaces record.
	Tried int `json:"tried"`
	// Match is whether the template is applied to the only Namespace that is compared; nil if there are several.
	*template.Match `json:",inline"`
	// Items are the Namespaces that change, sorted by change and name.
	Items []NamespaceChange `json:"items"`
}

// NamespaceChange is what a template changes in a Namespace.
type NamespaceChange struct {
	Namespace string `json:"namespace"`
	Change    Change `json:"change"`
	// Message is why the template fails in the Namespace.
	Message string `json:"message,omitempty"`
	// IsTried is true if all objects were applied as dry runs.
	IsTried bool `json:"tried"`
	// Objects are the objects that change.
	Objects []ObjectChange `json:"objects,omitempty"`

	namespace *corev1.Namespace
}

// ObjectChange is what a template changes in an object.
type ObjectChange struct {
	// Object is the name of the object in the template; empty if it is only recorded.
	Object string `json:"object,omitempty"`
	Group  string `json:"group,omitempty"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Change Change `json:"change"`
	// Message describes a failure, or why there are no fields.
	Message string `json:"message,omitempty"`
	// Fields are the fields that change, if they are known.
	Fields []FieldChange `json:"fields,omitempty"`

	rendered *render.Object
	recorded *template.ObjectState
	// beforeTry is the change before the dry run of the object; empty if there was none.
	beforeTry Change
}

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
	c.result.sort()
	return c.result
}

func (c *Comparison) sort() {
	slices.SortFunc(c.Items, func(a, b NamespaceChange) int {
		return cmp.Or(slices.Index(order, a.Change)-slices.Index(order, b.Change), strings.Compare(a.Namespace, b.Namespace))
	})
}

type comparer struct {
	changed, current *Template
	result           *Comparison
}

func (c *comparer) compare(ctx context.Context, namespace *corev1.Namespace) {
	change := NamespaceChange{Namespace: namespace.Name, namespace: namespace}
	state, err := template.ParseState(namespace)
	if err != nil {
		if template.Selects(c.changed.NamespaceTemplate, namespace) {
			c.fail(change, fmt.Sprintf("the namespace records an invalid state: %v", err))
		}
		return
	}
	recorded, isRecorded := state[c.changed.Name]
	tmpl := c.changed.NamespaceTemplate
	switch applies := tmpl.DeletionTimestamp == nil && template.Applies(tmpl, namespace, state); {
	case !applies && !isRecorded:
		if template.IsLate(tmpl, namespace, state) {
			c.result.Existing++
		}
		return
	case !applies && template.RetentionPolicy(tmpl) != v1alpha1.RetentionDelete:
		c.result.Unselected++
		return
	case !applies:
		change.Objects = c.deleted(state, nil)
	case template.IsKept(tmpl, namespace, recorded):
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

func (c *comparer) objects(
	ctx context.Context, namespace *corev1.Namespace, state template.State,
) ([]ObjectChange, error) {
	desired, err := c.changed.desired(ctx, namespace, template.AwaitsTemplates(namespace))
	if err != nil {
		return nil, err
	}
	if err := template.CheckCount(len(desired.Objects) + c.countEarlier(state)); err != nil {
		return nil, err
	}
	before := c.before(ctx, namespace)
	changes := c.metadata(namespace, state)
	needed := sets.New[template.ObjectKey]()
	for _, change := range changes {
		needed.Insert(template.ObjectKey{Kind: schema.GroupKind{Kind: change.Kind}, Name: change.Name})
	}
	for i := range desired.Objects {
		rendered := &desired.Objects[i]
		key := template.KeyOf(rendered.Manifest)
		change := ObjectChange{
			Object: rendered.Name, Group: key.Kind.Group, Kind: key.Kind.Kind, Name: key.Name,
			rendered: rendered, recorded: state[c.changed.Name].Find(key),
		}
		needed.Insert(key)
		old, ok := before[key]
		change.Change = compareObject(rendered, change.recorded, old, ok)
		switch other := state.Other(key, c.changed.Name); {
		case other != "" && change.Change == Created:
			change.Change, change.Message = Failed, fmt.Sprintf("template %q also contains this object", other)
		case change.Change == Changed && rendered.IsCopy:
			change.Message = "the data of the copy is not compared"
		case change.Change == Changed && ok && !old.IsCopy:
			change.Fields = compareFields(change.Kind, old.Manifest.Object, rendered.Manifest.Object)
		}
		changes = append(changes, change)
	}
	// Whether all objects can be applied is known only after a dry run.
	for _, change := range c.deleted(state, needed) {
		kind := schema.GroupKind{Group: change.Group, Kind: change.Kind}
		if template.MayRemove(c.changed.NamespaceTemplate, kind, len(desired.Objects)) {
			changes = append(changes, change)
		}
	}
	return changes, nil
}

// countEarlier returns the number of objects of the templates before this one in a Namespace.
func (c *comparer) countEarlier(state template.State) int {
	count := 0
	for name, entry := range state {
		if name < c.changed.Name {
			count += len(entry.Objects)
		}
	}
	return count
}

// metadata returns what the template does to the labels and annotations of a Namespace.
func (c *comparer) metadata(namespace *corev1.Namespace, state template.State) []ObjectChange {
	labels, annotations := templateset.Values(&c.changed.Spec)
	requestedBy := namespace.Annotations[v1alpha1.AnnotationRequestedBy]
	changes := c.metadataOf(template.KindLabel, namespace.Labels,
		templateset.Evaluate(labels, namespace, requestedBy), state)
	return append(changes, c.metadataOf(template.KindAnnotation, namespace.Annotations,
		templateset.Evaluate(annotations, namespace, requestedBy), state)...)
}

func (c *comparer) metadataOf(
	kind schema.GroupKind, current, desired map[string]string, state template.State,
) []ObjectChange {
	changes := make([]ObjectChange, 0, len(desired))
	for _, name := range slices.Sorted(maps.Keys(desired)) {
		key := template.ObjectKey{Kind: kind, Name: name}
		change := ObjectChange{Kind: kind.Kind, Name: name, recorded: state[c.changed.Name].Find(key)}
		before, exists := current[name]
		switch other := state.Other(key, c.changed.Name); {
		case change.recorded == nil && other != "":
			change.Change, change.Message = Failed, fmt.Sprintf("template %q also sets it", other)
		case exists && before == desired[name]:
			change.Change = Unchanged
		case change.recorded == nil && !exists:
			change.Change = Created
		case change.recorded == nil && c.changed.Spec.Sync.AdoptionPolicy != v1alpha1.AdoptAlways:
			change.Change, change.Message = Failed, "it exists already with another value"
		default:
			change.Change = Changed
			change.Fields = []FieldChange{{
				Path: "value", Before: encode(kind.Kind, "", before), After: encode(kind.Kind, "", desired[name]),
			}}
		}
		changes = append(changes, change)
	}
	return changes
}

// before returns the objects that the template in the cluster renders for a Namespace.
func (c *comparer) before(ctx context.Context, namespace *corev1.Namespace) map[template.ObjectKey]render.Object {
	found := map[template.ObjectKey]render.Object{}
	if c.current == nil {
		return found
	}
	// If it fails, the fields are not known.
	objects, _ := c.current.Render(ctx, namespace)
	for _, object := range objects {
		found[template.KeyOf(object.Manifest)] = object
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
	case !rendered.IsCopy && recorded.Content == template.ObjectContent(rendered.Manifest, rendered.Locked):
		return Unchanged
	case rendered.IsCopy && hasBefore && before.IsCopy && before.Locked == rendered.Locked &&
		reflect.DeepEqual(before.Manifest, rendered.Manifest):
		// The hash of a copy identifies the version of the source, which the operator follows in any case.
		return Unchanged
	}
	return Changed
}

// deleted returns the recorded objects that the operator deletes, because they are not needed. It never
// deletes adopted objects and objects of another template.
func (c *comparer) deleted(state template.State, needed sets.Set[template.ObjectKey]) []ObjectChange {
	var changes []ObjectChange
	for _, object := range state[c.changed.Name].Objects {
		key := object.Key()
		if !needed.Has(key) && !object.IsAdopted && state.Other(key, c.changed.Name) == "" {
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
	return ObjectChange{Group: object.Kind.Group, Kind: object.Kind.Kind, Name: object.Name, Change: change}
}

// FieldChange is the change of a field.
type FieldChange struct {
	// Path is the path of the field.
	Path string `json:"path"`
	// Before and After are the values as JSON; empty if there is none.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// maskedValue replaces the values in a Secret.
const maskedValue = `"***"`

// compareFields returns the fields that differ between two objects, sorted by path. It does not return
// the values in Secrets.
func compareFields(kind string, before, after map[string]any) []FieldChange {
	var changes []FieldChange
	collectFields("", before, after, func(path string, before, after any) {
		changes = append(changes, FieldChange{
			Path: path, Before: encode(kind, path, before), After: encode(kind, path, after),
		})
	})
	return changes
}

// collectFields calls add for each value that differs. It descends into maps and lists that exist on both
// sides.
func collectFields(path string, before, after any, add func(path string, before, after any)) {
	if reflect.DeepEqual(before, after) {
		return
	}
	oldMap, isOldMap := before.(map[string]any)
	newMap, isNewMap := after.(map[string]any)
	if isOldMap && isNewMap {
		keys := slices.Collect(maps.Keys(oldMap))
		keys = slices.AppendSeq(keys, maps.Keys(newMap))
		slices.Sort(keys)
		for _, key := range slices.Compact(keys) {
			collectFields(childPath(path, key), oldMap[key], newMap[key], add)
		}
		return
	}
	oldList, isOldList := before.([]any)
	newList, isNewList := after.([]any)
	if isOldList && isNewList {
		for i := range max(len(oldList), len(newList)) {
			collectFields(path+"["+strconv.Itoa(i)+"]", element(oldList, i), element(newList, i), add)
		}
		return
	}
	add(path, before, after)
}

func element(list []any, index int) any {
	if index < len(list) {
		return list[index]
	}
	return nil
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func childPath(path, key string) string {
	switch {
	case !plainKey.MatchString(key):
		return path + "[" + key + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

func encode(kind, path string, value any) string {
	if value == nil {
		return ""
	}
	if isData := len(path) >= len("data") && path[:len("data")] == "data"; kind == "Secret" && isData {
		return maskedValue
	}
	// Encoding decoded JSON cannot fail.
	encoded, _ := json.Marshal(value)
	return string(encoded)
}
