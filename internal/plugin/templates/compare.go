// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/observe"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
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
	// Revision is the revision of the compared template, and Current the revision in the cluster; empty if there is none.
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
	// Tried is the number of Items whose objects were all applied as dry runs. The results for other Items are inferred
	// from the records of their Namespaces.
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

	// operation is the exchange that applies the object; nil if it is not applied, and for a label or annotation.
	operation *plan.Operation
	// beforeTry is the change before the dry run of the object; empty if there was none.
	beforeTry Change
}

// Compare returns what a template would change in Namespaces. current is the template in the cluster, or
// nil. Whether an object changes follows from what its Namespace records, as in the operator; current is
// required only for copies and for the fields that change.
func Compare(ctx context.Context, changed, current *Template, namespaces []corev1.Namespace) *Comparison {
	c := &comparer{changed: changed.DeepCopy(), current: current, result: &Comparison{
		Template: changed.Name, Revision: changed.Revision(), Items: []NamespaceChange{},
		Namespaces: map[Change]int{Unchanged: 0}, Objects: map[Change]int{Unchanged: 0},
	}}
	if current != nil {
		c.result.Current = current.Revision()
	}
	spec := &c.changed.Spec
	spec.Sync.AdoptionPolicy = cmp.Or(spec.Sync.AdoptionPolicy, v1alpha1.AdoptIfEqual)
	spec.MaxNamespacesPerUser = nil // Only the operator knows which Namespaces it has admitted.
	c.observer = c.newObserver()
	for i := range namespaces {
		if namespaces[i].DeletionTimestamp == nil {
			c.compare(ctx, &namespaces[i])
		}
	}
	c.result.finish()
	return c.result
}

// finish counts and sorts what changes.
func (c *Comparison) finish() {
	for _, change := range order {
		if change != Unchanged { // The Items do not contain what does not change.
			c.Namespaces[change], c.Objects[change] = 0, 0
		}
	}
	for _, item := range c.Items {
		c.Namespaces[item.Change]++
		for _, object := range item.Objects {
			c.Objects[object.Change]++
		}
	}
	slices.SortFunc(c.Items, func(a, b NamespaceChange) int {
		return cmp.Or(slices.Index(order, a.Change)-slices.Index(order, b.Change), strings.Compare(a.Namespace, b.Namespace))
	})
}

type comparer struct {
	changed  *v1alpha1.NamespaceTemplate
	current  *Template
	observer *observe.Observer
	// before returns the objects that the template in the cluster renders for the Namespace that is compared.
	before func() map[template.ObjectKey]render.Object
	result *Comparison
}

// newObserver returns an Observer for Namespaces in which all objects are as they record them, and which get the
// changed template now.
func (c *comparer) newObserver() *observe.Observer {
	now, revision := clock.RealClock{}, c.result.Revision
	rollouts := &observe.Rollouts{Clock: now}
	rollouts.Set(c.changed.UID, plan.Rollout{
		Latest: revision, Current: revision, Settings: v1alpha1.TemplateRollout{MaxNamespacesPerSecond: math.MaxInt32},
	})
	return &observe.Observer{
		Programs: &observe.Programs{}, Rollouts: rollouts, Writes: &observe.Writes{}, Limits: &observe.Limits{},
		ServiceAccounts: anyAccount{}, ObjectOf: c.objectOf, FullPassInterval: time.Hour,
		Clock: now, ServerClock: servertime.NewClock(now),
	}
}

// anyAccount is a reader for which each ServiceAccount exists: users need no permission to read them.
type anyAccount struct{ client.Reader }

func (anyAccount) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}

// renderCurrent returns the objects that the template in the cluster renders for a Namespace; none if it fails.
func (c *comparer) renderCurrent(
	ctx context.Context, namespace *corev1.Namespace,
) map[template.ObjectKey]render.Object {
	found := map[template.ObjectKey]render.Object{}
	if c.current != nil {
		objects, _ := c.current.Render(ctx, namespace)
		for _, object := range objects {
			found[template.KeyOf(object.Manifest)] = object
		}
	}
	return found
}

// objectOf returns a rendered object in a Namespace in which it is as the Namespace records it.
func (c *comparer) objectOf(in *plan.Snapshot, rendered render.Object) plan.ObjectSnapshot {
	object := plan.NewObject(rendered)
	recorded := in.State[c.changed.Name].Find(object.Key())
	if recorded == nil {
		return object
	}
	object.Current = &plan.Observed{UID: recorded.UID, Fields: recorded.Fields}
	old := c.before()[object.Key()]
	if rendered.IsCopy && old.IsCopy && old.Locked == rendered.Locked &&
		reflect.DeepEqual(old.Manifest, rendered.Manifest) {
		// The hash of a copy identifies the version of the source, which the operator follows in any case.
		object.Content = recorded.Content
	}
	return object
}

func (c *comparer) compare(ctx context.Context, namespace *corev1.Namespace) {
	name, item := c.changed.Name, NamespaceChange{Namespace: namespace.Name}
	c.before = sync.OnceValue(func() map[template.ObjectKey]render.Object { return c.renderCurrent(ctx, namespace) })
	snapshot, err := c.observer.Observe(ctx, namespace, []v1alpha1.NamespaceTemplate{*c.changed})
	if err != nil {
		if ctx.Err() == nil && template.Selects(c.changed, namespace) {
			item.Message = fmt.Sprintf("the namespace records an invalid state: %v", err)
			c.add(item, false)
		}
		return
	}
	if _, isRecorded := snapshot.State[name]; len(snapshot.Applicable) > 0 ||
		isRecorded && template.RetentionPolicy(c.changed) == v1alpha1.RetentionDelete {
		item.Objects, err = c.objectChanges(snapshot)
		if err != nil {
			item.Message = err.Error()
		}
		c.add(item, isRecorded)
	} else if isRecorded {
		c.result.Unselected++
	} else if template.IsLate(c.changed, namespace, snapshot.State) {
		c.result.Existing++
	}
}

// objectChanges returns what happens to the objects of the template. What the Namespace records of other templates is
// kept.
func (c *comparer) objectChanges(snapshot plan.Snapshot) ([]ObjectChange, error) {
	for name := range snapshot.State {
		if name != c.changed.Name {
			other := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
			snapshot.Applicable = append(snapshot.Applicable, plan.TemplateSnapshot{Template: other})
		}
	}
	slices.SortFunc(snapshot.Applicable, func(a, b plan.TemplateSnapshot) int {
		return strings.Compare(a.Template.Name, b.Template.Name)
	})
	decisions, err := plan.Preview(snapshot, c.changed.Name)
	changes := make([]ObjectChange, 0, len(decisions))
	for i := range decisions {
		changes = append(changes, c.objectChange(&decisions[i], snapshot.Namespace))
	}
	return changes, err
}

func (c *comparer) objectChange(decided *plan.Decision, namespace *corev1.Namespace) ObjectChange {
	key, object := decided.Key, &decided.Object
	change := ObjectChange{
		Object: object.Name, Group: key.Kind.Group, Kind: key.Kind.Kind, Name: key.Name, Change: Changed,
	}
	switch old, hasOld := c.before()[key]; {
	case decided.Err != nil:
		change.Change, change.Message = Failed, decided.Err.Error()
		return change
	case decided.Action == plan.NoAction:
		change.Change = Unchanged
	case decided.Action == plan.ActionDelete: // Whether all objects can be applied is known only after a dry run.
		change.Change = Deleted
	case decided.Action == plan.ActionCreate && (!template.IsMetadata(key.Kind) || object.Current == nil):
		change.Change = Created
	case template.IsMetadata(key.Kind):
		current := namespace.Labels
		if key.Kind == template.KindAnnotation {
			current = namespace.Annotations
		}
		change.Fields = compareFields("", map[string]any{"value": current[key.Name]}, map[string]any{"value": object.Value})
	case object.Content == "":
		change.Message = "the data of the copy is not compared"
	case hasOld && !old.IsCopy:
		change.Fields = compareFields(change.Kind, old.Manifest.Object, object.Manifest.Object)
	}
	change.operation = decided.Operation
	return change
}

// add adds a Namespace to the result.
func (c *comparer) add(item NamespaceChange, isRecorded bool) {
	counts, total := map[Change]int{}, len(item.Objects)
	for _, object := range item.Objects {
		counts[object.Change]++
	}
	item.Objects = slices.DeleteFunc(item.Objects, has(Unchanged))
	c.result.Objects[Unchanged] += counts[Unchanged]
	switch item.Change = Changed; {
	case item.Message != "" || counts[Failed] > 0:
		item.setFailed(Failed)
	case counts[Unchanged] == total:
		c.result.Namespaces[Unchanged]++
		return
	case !isRecorded:
		item.Change = Created
	case counts[Deleted] == total:
		item.Change = Deleted
	}
	c.result.Items = append(c.result.Items, item)
}

// has returns a function that reports whether an object has a change.
func has(change Change) func(ObjectChange) bool {
	return func(object ObjectChange) bool { return object.Change == change }
}

// setFailed sets that the template fails. The operator deletes nothing unless all objects were applied.
func (n *NamespaceChange) setFailed(change Change) {
	n.Change, n.Objects = change, slices.DeleteFunc(n.Objects, has(Deleted))
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
	old, current := map[string]string{}, map[string]string{}
	addFields(old, "", before)
	addFields(current, "", after)
	paths := maps.Clone(old)
	maps.Copy(paths, current)
	var changes []FieldChange
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		change := FieldChange{Path: path, Before: old[path], After: current[path]}
		if change.Before == change.After {
			continue
		}
		for _, value := range []*string{&change.Before, &change.After} {
			if kind == "Secret" && strings.HasPrefix(path, "data") && *value != "" {
				*value = maskedValue
			}
		}
		changes = append(changes, change)
	}
	return changes
}

// addFields adds the values as JSON that are neither in a map nor in a list, by path.
func addFields(fields map[string]string, path string, value any) {
	switch value := value.(type) {
	case nil:
		return
	case map[string]any:
		for key, child := range value {
			addFields(fields, plan.JoinPath(path, key), child)
		}
		if len(value) > 0 {
			return
		}
	case []any:
		for i, child := range value {
			addFields(fields, path+"["+strconv.Itoa(i)+"]", child)
		}
		if len(value) > 0 {
			return
		}
	}
	encoded, _ := json.Marshal(value) // Encoding decoded JSON cannot fail.
	fields[path] = string(encoded)
}
