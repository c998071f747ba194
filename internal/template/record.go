// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

// MaxObjects limits the objects of all templates in a Namespace, whose annotation records them.
const MaxObjects = 256

const (
	// maxRecord is the size in bytes that the API server permits for all annotations of an object.
	maxRecord = 256 << 10

	// uidSize and hashSize are sizes in bytes. 48 bits prevent that a user, who chooses the managedFields of an object,
	// finds other ones with the same hash.
	uidSize, hashSize = 16, 6

	// A record ends with markAdopted if the object is adopted, and with markDifferent if it differs from its template.
	// separator separates the parts of a record that is not binary. Neither base64 nor a hash contains one of these
	// characters.
	markAdopted, markDifferent, separator = "~", "!", ":"
)

// entryRecord is an Entry in the annotation. Every watcher of Namespaces receives it, so nothing in it is repeated. The
// API version of an object, and its name in the template, are not recorded, because no decision needs them.
type entryRecord struct {
	Revision string `json:"revision,omitempty"`
	Target   string `json:"target,omitempty"`
	// Objects are encoded ObjectStates by "Kind.group" and name.
	Objects map[string]map[string]string `json:"objects,omitempty"`
	// LockedLabels and LockedAnnotations are keys, separated by commas. The policy complete finds them with
	// initialization.LockedLabelsPattern and initialization.LockedAnnotationsPattern.
	LockedLabels      string `json:"lockedLabels,omitempty"`
	LockedAnnotations string `json:"lockedAnnotations,omitempty"`
}

// ParseRecord returns the state that a Namespace records. The guard policy allows only holders of the verb "record"
// to change it. An error must not be treated as an empty state: the operator would adopt its own objects, and never
// delete them. Therefore the only valid text of a state is that which String returns.
func ParseRecord(namespace *corev1.Namespace) (Record, error) {
	text := namespace.Annotations[v1alpha1.AnnotationAppliedTemplates]
	state, err := decodeState(text)
	if err == nil && state.String() != text {
		err = errors.New("it has an unknown form")
	}
	if err != nil {
		return nil, fmt.Errorf("failed to parse annotation %s of namespace %q: %w",
			v1alpha1.AnnotationAppliedTemplates, namespace.Name, err)
	}
	return state, nil
}

// String returns the value of the annotation; empty if there are no templates.
func (s Record) String() string {
	if len(s) == 0 {
		return ""
	}
	records := make(map[string]entryRecord, len(s))
	for name, entry := range s {
		records[name] = entry.record()
	}
	// Encoding this type cannot fail. The keys of maps are sorted.
	encoded, _ := json.Marshal(records)
	return string(encoded)
}

func decodeState(text string) (Record, error) {
	if text == "" {
		return Record{}, nil
	}
	if len(text) > maxRecord {
		return nil, fmt.Errorf("it is larger than %d bytes", maxRecord)
	}
	var records map[string]entryRecord
	if err := json.Unmarshal([]byte(text), &records); err != nil {
		return nil, err
	}
	state := make(Record, len(records))
	for name, record := range records {
		entry := Entry{
			Revision: record.Revision, Target: record.Target, LockedLabels: initialization.SplitNames(record.LockedLabels),
			LockedAnnotations: initialization.SplitNames(record.LockedAnnotations),
		}
		for _, kind := range slices.Sorted(maps.Keys(record.Objects)) {
			for _, object := range slices.Sorted(maps.Keys(record.Objects[kind])) {
				decoded, err := decodeObject(kind, object, record.Objects[kind][object])
				if err != nil {
					return nil, fmt.Errorf("template %q, %s %q: %w", name, kind, object, err)
				}
				entry.Objects = append(entry.Objects, decoded)
			}
		}
		state[name] = entry
	}
	return state, nil
}

// Equal reports whether the annotation contains the same of two entries.
func (s Entry) Equal(other Entry) bool {
	return apiequality.Semantic.DeepEqual(s.record(), other.record())
}

// record returns what the annotation contains of an entry.
func (s Entry) record() entryRecord {
	result := entryRecord{
		Revision: s.Revision, Target: s.Target, LockedLabels: strings.Join(s.LockedLabels, ","),
		LockedAnnotations: strings.Join(s.LockedAnnotations, ","),
	}
	for _, object := range s.Objects {
		if result.Objects == nil {
			result.Objects = map[string]map[string]string{}
		}
		kind := object.Kind.String()
		if result.Objects[kind] == nil {
			result.Objects[kind] = map[string]string{}
		}
		result.Objects[kind][object.Name] = object.encode()
	}
	return result
}

// encode returns the UID and the hashes of an object: base64 of their bytes or, if the UID is not one that
// kube-apiserver assigns, or if there is no hash of the managedFields, their texts.
func (o ObjectState) encode() string {
	uid, uidErr := hex.DecodeString(strings.ReplaceAll(string(o.UID), "-", ""))
	content, contentErr := hex.DecodeString(o.Content)
	fields, fieldsErr := hex.DecodeString(o.Fields)
	packed := append(append(uid, content...), fields...)
	text := string(o.UID) + separator + o.Content + separator + o.Fields
	if errors.Join(uidErr, contentErr, fieldsErr) == nil && len(packed) == uidSize+2*hashSize && unpack(packed) == text {
		text = base64.RawURLEncoding.EncodeToString(packed)
	}
	if o.IsAdopted {
		text += markAdopted
	}
	if o.IsDifferent {
		text += markDifferent
	}
	return text
}

// unpack returns the texts of a UID and of two hashes.
func unpack(packed []byte) string {
	digits := hex.EncodeToString(packed)
	uid, content, fields := digits[:2*uidSize], digits[2*uidSize:2*(uidSize+hashSize)], digits[2*(uidSize+hashSize):]
	uid = strings.Join([]string{uid[:8], uid[8:12], uid[12:16], uid[16:20], uid[20:]}, "-")
	return uid + separator + content + separator + fields
}

func decodeObject(kind, name, value string) (ObjectState, error) {
	object := ObjectState{Kind: schema.ParseGroupKind(kind), Name: name}
	if group := object.Kind.Group; object.Kind.Kind == "" || name == "" ||
		group != "" && len(validation.IsDNS1123Subdomain(group)) > 0 {
		return object, errors.New("it has no valid kind and name")
	}
	value, object.IsDifferent = strings.CutSuffix(value, markDifferent)
	value, object.IsAdopted = strings.CutSuffix(value, markAdopted)
	if !strings.Contains(value, separator) {
		packed, err := base64.RawURLEncoding.DecodeString(value)
		if err != nil || len(packed) != uidSize+2*hashSize {
			return object, fmt.Errorf("it does not contain %d bytes as base64", uidSize+2*hashSize)
		}
		value = unpack(packed)
	}
	// The UID that an aggregated API server assigns can contain the separator.
	value, fields, _ := cutLast(value)
	uid, content, ok := cutLast(value)
	if !ok || uid == "" {
		return object, errors.New("it has no UID")
	}
	object.UID, object.Content, object.Fields = types.UID(uid), content, fields
	return object, nil
}

// cutLast cuts a text at the last separator.
func cutLast(text string) (before, after string, ok bool) {
	index := strings.LastIndex(text, separator)
	if index < 0 {
		return text, "", false
	}
	return text[:index], text[index+len(separator):], true
}

// WithLock returns an entry with the labels and annotations that the template locks: those that the entry records, and
// the labels by which the template selects the Namespace. A write that omits one does not remove it.
func (s Entry) WithLock(template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace) Entry {
	s.LockedLabels, s.LockedAnnotations = nil, nil
	if template.Spec.Metadata == nil || template.Spec.Metadata.Lock != v1alpha1.LockAll {
		return s
	}
	for _, object := range s.Objects {
		switch object.Kind {
		case KindLabel:
			s.LockedLabels = append(s.LockedLabels, object.Name)
		case KindAnnotation:
			s.LockedAnnotations = append(s.LockedAnnotations, object.Name)
		}
	}
	if len(s.LockedLabels)+len(s.LockedAnnotations) > 0 {
		s.LockedLabels = append(s.LockedLabels, selectingLabels(template, namespace.Labels)...)
	}
	s.LockedLabels, s.LockedAnnotations = sorted(s.LockedLabels), sorted(s.LockedAnnotations)
	return s
}

func sorted(keys []string) []string { return slices.Compact(slices.Sorted(slices.Values(keys))) }

// selectingLabels returns the labels without which a template would not select a Namespace. The API server sets
// kubernetes.io/metadata.name itself.
func selectingLabels(template *v1alpha1.NamespaceTemplate, labels map[string]string) []string {
	var keys []string
	if labels[v1alpha1.LabelTemplate] == template.Name {
		keys = append(keys, v1alpha1.LabelTemplate)
	}
	if selector := template.Spec.NamespaceSelector; selector != nil {
		keys = slices.AppendSeq(keys, maps.Keys(selector.MatchLabels))
		for _, requirement := range selector.MatchExpressions {
			if requirement.Operator == metav1.LabelSelectorOpIn || requirement.Operator == metav1.LabelSelectorOpExists {
				keys = append(keys, requirement.Key)
			}
		}
	}
	return slices.DeleteFunc(keys, func(key string) bool {
		_, exists := labels[key]
		return !exists || key == corev1.LabelMetadataName
	})
}
