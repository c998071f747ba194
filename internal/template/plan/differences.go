// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

const (
	// compareInterval is the time between comparisons of an object that differs from its template after it was applied.
	// Admission, which can cause the difference, can change meanwhile.
	compareInterval = 30 * time.Minute
	// maxDifferences is the number of fields that a problem names.
	maxDifferences = 5
)

// difference contains the fields in which an applied object differs from its template, and the time of the comparison.
type difference struct {
	fields []string
	at     time.Time
}

// mustCompare reports whether an object that differed from its template must be compared again. After a restart of the
// operator, the fields in which the object differs are unknown.
func (m Memory) mustCompare(recorded *template.ObjectState, now time.Time) bool {
	if recorded == nil || !recorded.IsDifferent {
		return false
	}
	known, ok := m.Differences[recorded.Key()]
	return !ok || now.Sub(known.at) >= compareInterval
}

// recordDifference stores the fields in which an object differs from the template after the template was applied.
func (c *conclusion) recordDifference(o *object, fields []string) {
	recorded := *o.recorded // The state of the Namespace before the pass contains the original.
	recorded.IsDifferent = len(fields) > 0
	if o.recorded = &recorded; !recorded.IsDifferent {
		delete(c.Memory.Differences, o.Key())
		return
	}
	template.Put(&c.Memory.Differences, o.Key(), difference{fields, c.Now})
}

// reportDifference adds a problem if an object differs from its template after it was applied. The problem delays no
// Namespace, and the object is not applied again: the result would be the same.
func (c *conclusion) reportDifference(t *templatePlan, o *object) {
	if o.recorded == nil || !o.recorded.IsDifferent {
		return
	}
	known, ok := c.Memory.Differences[o.Key()]
	if !ok { // An earlier process has compared an object that dry runs could change.
		known = difference{fields: []string{"unknown fields"}, at: c.Now}
	}
	fields := strings.Join(known.fields[:min(len(known.fields), maxDifferences)], ", ")
	if more := len(known.fields) - maxDifferences; more > 0 {
		fields += fmt.Sprintf(", and %d more", more)
	}
	c.retry(known.at.Add(compareInterval).Sub(c.Now))
	t.addProblem(o.Name, template.Problemf(v1alpha1.ReasonFieldsDiffer,
		"%s differs from the template in %s, because the API server, a mutating admission policy or a webhook changes "+
			"what the operator applies", describeObject(&o.ObjectSnapshot), fields))
}

// Differences returns the sorted fields of a manifest whose values in applied have another meaning. The object applied
// is the API server's response to the manifest. Differences ignores fields that the manifest does not set, and values
// that the API server only formats in another way.
func Differences(manifest, applied *unstructured.Unstructured, templateName string) (fields []string) {
	set := claims(applied.GetManagedFields(), claimsOf(templateName))
	for _, key := range slices.Sorted(maps.Keys(manifest.Object)) {
		switch key {
		case "apiVersion", "kind":
		case "metadata":
			fields = append(fields, compareMaps(metadataOf(manifest), metadataOf(applied), key, &fieldpath.Set{})...)
		default:
			fields = append(fields, compareField(manifest.Object, applied.Object, key, "", set)...)
		}
	}
	return fields
}

// metadataOf returns the labels and annotations of an object.
func metadataOf(object *unstructured.Unstructured) map[string]any {
	labels, _, _ := unstructured.NestedMap(object.Object, "metadata", "labels")
	annotations, _, _ := unstructured.NestedMap(object.Object, "metadata", "annotations")
	return map[string]any{"labels": labels, "annotations": annotations}
}

// compareField returns the paths of the differences in one field of two maps. The set contains the fields of the maps
// that the template owns; it is empty in elements of lists.
func compareField(wanted, found map[string]any, key, path string, set *fieldpath.Set) []string {
	path = JoinPath(path, key)
	if found[key] == nil {
		if isZero(wanted[key]) {
			return nil
		}
		return []string{path}
	}
	element := fieldpath.PathElement{FieldName: &key}
	return compareValues(wanted[key], found[key], path, set.Members.Has(element), set.WithPrefix(element))
}

func compareValues(wanted, found any, path string, isAtomic bool, set *fieldpath.Set) []string {
	switch wanted := wanted.(type) {
	case nil:
		return nil
	case map[string]any:
		if found, ok := found.(map[string]any); ok {
			return compareMaps(wanted, found, path, set)
		}
	case []any:
		if found, ok := found.([]any); ok {
			return compareLists(wanted, found, path, isAtomic)
		}
	default:
		if isSameValue(wanted, found) {
			return nil
		}
	}
	return []string{path}
}

func compareMaps(wanted, found map[string]any, path string, set *fieldpath.Set) (fields []string) {
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		fields = append(fields, compareField(wanted, found, key, path, set)...)
	}
	return fields
}

// compareLists compares the elements of lists. Other clients can add elements unless the list is atomic, and the API
// server can order them in another way.
func compareLists(wanted, found []any, path string, isAtomic bool) (fields []string) {
	if isAtomic && len(wanted) != len(found) {
		return []string{path}
	}
	for i, element := range wanted {
		isEqual := func(current any) bool {
			return len(compareValues(element, current, "", false, &fieldpath.Set{})) == 0
		}
		if i < len(found) && isEqual(found[i]) || !isAtomic && slices.ContainsFunc(found, isEqual) {
			continue
		}
		position := fmt.Sprintf("%s[%d]", path, i)
		if len(wanted) == len(found) {
			fields = append(fields, compareValues(element, found[i], position, false, &fieldpath.Set{})...)
		} else {
			fields = append(fields, position)
		}
	}
	return fields
}

// JoinPath returns the path of a field in another one.
func JoinPath(path, key string) string {
	switch {
	case strings.ContainsAny(key, "./"):
		return path + "[" + key + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

// isZero reports whether the API server can omit a value.
func isZero(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case map[string]any:
		for _, child := range value {
			if !isZero(child) {
				return false
			}
		}
		return true
	case []any:
		return len(value) == 0
	}
	return reflect.ValueOf(value).IsZero()
}

// isSameValue reports whether two values that are neither maps nor lists have the same meaning in a type of Kubernetes:
// the API server writes quantities, times and base64 in a form of its own, and replaces an empty string by a default.
func isSameValue(wanted, found any) bool {
	a, isText := textOf(wanted)
	b, isOtherText := textOf(found)
	switch {
	case reflect.DeepEqual(wanted, found) || wanted == "":
		return true
	case !isText || !isOtherText:
		return false
	}
	return isSameAs(a, b, resource.ParseQuantity, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 }) ||
		isSameAs(a, b, time.ParseDuration, func(a, b time.Duration) bool { return a == b }) ||
		isSameAs(a, b, func(text string) (time.Time, error) { return time.Parse(time.RFC3339Nano, text) }, time.Time.Equal) ||
		isSameAs(a, b, base64.StdEncoding.DecodeString, bytes.Equal)
}

// isSameAs reports whether two texts are equal values of a type.
func isSameAs[T any](a, b string, parse func(string) (T, error), isEqual func(T, T) bool) bool {
	first, err := parse(a)
	if err != nil {
		return false
	}
	second, err := parse(b)
	return err == nil && isEqual(first, second)
}

// textOf returns the text of a string or number.
func textOf(value any) (string, bool) {
	switch value := value.(type) {
	case string:
		return value, true
	case int64:
		return strconv.FormatInt(value, 10), true
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64), true
	}
	return "", false
}
