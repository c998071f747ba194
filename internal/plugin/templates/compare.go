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
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
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

	snapshot plan.Snapshot
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

	// isObject is false for a label, an annotation, and an object that is only recorded. The content of a copy is unknown.
	isObject, isCopy bool
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
	change := NamespaceChange{Namespace: namespace.Name}
	state, err := template.ParseState(namespace)
	if err != nil {
		if template.Selects(c.changed.NamespaceTemplate, namespace) {
			c.fail(change, fmt.Sprintf("the namespace records an invalid state: %v", err))
		}
		return
	}
	recorded, isRecorded := state[c.changed.Name]
	tmpl := c.changed.NamespaceTemplate
	switch applies := c.applies(namespace, state); {
	case !applies && !isRecorded:
		if template.IsLate(tmpl, namespace, state) {
			c.result.Existing++
		}
		return
	case !applies && template.RetentionPolicy(tmpl) != v1alpha1.RetentionDelete:
		c.result.Unselected++
		return
	}
	change.snapshot = c.snapshot(ctx, namespace, state)
	objects, deleted, err := plan.Compute(change.snapshot, plan.Elapsed(tmpl.Name, recorded, change.snapshot.Now)).
		Decisions(tmpl.Name)
	if err != nil {
		c.fail(change, err.Error())
		return
	}
	if objects == nil && deleted == nil {
		change.Objects = kept(recorded)
	}
	before := c.before(ctx, namespace)
	for i := range objects {
		change.Objects = append(change.Objects, c.objectChange(&objects[i], namespace, before))
	}
	for _, object := range deleted { // Whether all objects can be applied is known only after a dry run.
		change.Objects = append(change.Objects, recordedChange(object, Deleted))
	}
	c.add(change, isRecorded)
}

func (c *comparer) applies(namespace *corev1.Namespace, state template.State) bool {
	return c.changed.DeletionTimestamp == nil && template.Applies(c.changed.NamespaceTemplate, namespace, state)
}

// snapshot returns what is known about a Namespace in which all objects are as it records them. What it records of
// other templates is kept.
func (c *comparer) snapshot(ctx context.Context, namespace *corev1.Namespace, state template.State) plan.Snapshot {
	tmpl := c.changed.DeepCopy()
	tmpl.Spec.Sync.AdoptionPolicy = cmp.Or(tmpl.Spec.Sync.AdoptionPolicy, v1alpha1.AdoptIfEqual)
	now := time.Now()
	s := plan.Snapshot{
		Namespace: namespace, State: state, Now: now, Start: now, FullPass: time.Hour,
		Templates: []v1alpha1.NamespaceTemplate{*tmpl},
	}
	for name := range state {
		if name != tmpl.Name {
			other := &v1alpha1.NamespaceTemplate{}
			other.Name = name
			s.Applicable = append(s.Applicable, plan.TemplateSnapshot{Template: other})
		}
	}
	if c.applies(namespace, state) {
		s.Applicable = append(s.Applicable, c.templateSnapshot(ctx, namespace, state, tmpl))
	}
	slices.SortFunc(s.Applicable, func(a, b plan.TemplateSnapshot) int {
		return strings.Compare(a.Template.Name, b.Template.Name)
	})
	return s
}

func (c *comparer) templateSnapshot(
	ctx context.Context, namespace *corev1.Namespace, state template.State, tmpl *v1alpha1.NamespaceTemplate,
) plan.TemplateSnapshot {
	revision, recorded := c.changed.Revision(), state[tmpl.Name]
	s := plan.TemplateSnapshot{
		Template: tmpl, Choice: plan.Choice{Revision: revision, Current: revision}, Latest: revision,
	}
	desired, err := c.changed.desired(ctx, namespace, template.AwaitsTemplates(namespace))
	if err != nil {
		s.Unknown = err
		return s
	}
	labels, annotations := templateset.Values(&c.changed.Spec)
	s.IsPartial, s.Objects = desired.IsPartial, plan.MetadataOf(labels, annotations, namespace)
	before := c.before(ctx, namespace)
	for _, rendered := range desired.Objects {
		object := plan.NewObject(rendered)
		if known := recorded.Find(object.Key()); known != nil {
			object.Current = &plan.Observed{UID: known.UID, Fields: known.Fields}
			old, ok := before[object.Key()]
			if rendered.IsCopy && ok && old.IsCopy && old.Locked == rendered.Locked &&
				reflect.DeepEqual(old.Manifest, rendered.Manifest) {
				// The hash of a copy identifies the version of the source, which the operator follows in any case.
				object.Content = known.Content
			}
		}
		s.Objects = append(s.Objects, object)
	}
	return s
}

// objectChange returns the change of an object. before has the objects that the template in the cluster renders.
func (c *comparer) objectChange(
	decided *plan.Decision, namespace *corev1.Namespace, before map[template.ObjectKey]render.Object,
) ObjectChange {
	key, manifest := decided.Object.Key(), decided.Object.Manifest
	change := ObjectChange{Object: decided.Object.Name, Group: key.Kind.Group, Kind: key.Kind.Kind, Name: key.Name}
	switch old, hasOld := before[key]; {
	case decided.Err != nil:
		change.Change, change.Message = Failed, decided.Err.Error()
	case decided.Action == plan.NoAction:
		change.Change = Unchanged
	case decided.Action == plan.ActionCreate && (!template.IsMetadata(key.Kind) || decided.Object.Current == nil):
		change.Change = Created
	case template.IsMetadata(key.Kind):
		current := namespace.Labels
		if key.Kind == template.KindAnnotation {
			current = namespace.Annotations
		}
		change.Change = Changed
		change.Fields = []FieldChange{{Path: "value", Before: encode("", "", current[key.Name]),
			After: encode("", "", decided.Object.Value)}}
	default:
		change.Change = Changed
		if decided.Object.Content == "" {
			change.Message = "the data of the copy is not compared"
		} else if hasOld && !old.IsCopy {
			change.Fields = compareFields(change.Kind, old.Manifest.Object, manifest.Object)
		}
	}
	change.isObject, change.isCopy = !template.IsMetadata(key.Kind), decided.Object.Content == ""
	return change
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
