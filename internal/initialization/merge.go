// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"cmp"
	"encoding/json"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/confinement"
)

// Merged is the result of Merge.
type Merged struct {
	// Initializers is the effective list, in order. Its length is at most
	// v1alpha1.MaxSetInitializers.
	Initializers []v1alpha1.EffectiveInitializer
	// WaitingSubjects are the waitingSubjects of all configurations that are not excluded, sorted and
	// without duplicates. Their number is at most v1alpha1.MaxSetWaitingSubjects.
	WaitingSubjects []v1alpha1.Subject
	// Excluded are the names of the configurations that do not fit, sorted. Initializers that only
	// these configurations name are not in the list.
	Excluded []string
	// TooLarge are the names in Excluded of configurations that exceed the maximum size or the maximum
	// number of waiting subjects, sorted.
	TooLarge []string
	// Overridden maps the name of a configuration to the effective entries that override settings of
	// its initializers.
	Overridden map[string][]v1alpha1.EffectiveInitializer
}

// maxSetBytes is the maximum size of the entries of the set in JSON. Even with managedFields, which
// repeat part of the entries, the set stays below 1.5 MiB, the maximum request size of etcd.
const maxSetBytes = 512 << 10

// Merge merges all configurations into one list as the Namespace Initializer KEP defines it: the
// configurations are sorted by name, and the order within each configuration is preserved. If
// several configurations name an initializer, the first entry determines its position and its
// settings. Configurations that are being deleted are ignored.
//
// A configuration that would make the list exceed v1alpha1.MaxSetInitializers or maxSetBytes, or the
// subjects exceed v1alpha1.MaxSetWaitingSubjects or MaxSetConfinedBytes, is excluded completely, because
// running only some of its initializers can be worse than running none.
func Merge(configurations []v1alpha1.NamespaceInitializerConfiguration) Merged {
	merged := Merged{Overridden: map[string][]v1alpha1.EffectiveInitializer{}}
	positions := map[string]int{}
	size := 0
	for _, configuration := range sortedByName(configurations) {
		if configuration.DeletionTimestamp != nil {
			continue
		}
		added, overridden, addedSize := merged.additions(&configuration, positions)
		if len(merged.Initializers)+len(added) > v1alpha1.MaxSetInitializers {
			merged.Excluded = append(merged.Excluded, configuration.Name)
			continue
		}
		waiting := slices.Concat(merged.WaitingSubjects, configuration.WaitingSubjects)
		slices.SortFunc(waiting, compareSubjects)
		waiting = slices.Compact(waiting)
		if size+addedSize > maxSetBytes || len(waiting) > v1alpha1.MaxSetWaitingSubjects ||
			!fitsConfinement(merged.Initializers, added) {
			merged.Excluded = append(merged.Excluded, configuration.Name)
			merged.TooLarge = append(merged.TooLarge, configuration.Name)
			continue
		}
		for i, initializer := range added {
			positions[initializer.Name] = len(merged.Initializers) + i
		}
		merged.Initializers = append(merged.Initializers, added...)
		size += addedSize
		merged.WaitingSubjects = waiting
		if len(overridden) > 0 {
			merged.Overridden[configuration.Name] = overridden
		}
	}
	return merged
}

// fitsConfinement reports whether the confined subjects fit into the policy confined-initializers.
func fitsConfinement(initializers, added []v1alpha1.EffectiveInitializer) bool {
	if !slices.ContainsFunc(added, func(entry v1alpha1.EffectiveInitializer) bool { return len(entry.Subjects) > 0 }) {
		return true
	}
	return confinement.Compute(slices.Concat(initializers, added), "").Size() <= v1alpha1.MaxSetConfinedBytes
}

func sortedByName(
	configurations []v1alpha1.NamespaceInitializerConfiguration,
) []v1alpha1.NamespaceInitializerConfiguration {
	return slices.SortedFunc(slices.Values(configurations), func(a, b v1alpha1.NamespaceInitializerConfiguration) int {
		return cmp.Compare(a.Name, b.Name)
	})
}

func compareSubjects(a, b v1alpha1.Subject) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// additions returns the entries that a configuration adds to the list, the entries in the list that
// override its settings, and the size of the added entries in JSON.
func (m *Merged) additions(
	configuration *v1alpha1.NamespaceInitializerConfiguration, positions map[string]int,
) (added, overridden []v1alpha1.EffectiveInitializer, size int) {
	for _, initializer := range configuration.Initializers {
		if position, ok := positions[initializer.Name]; ok {
			if first := m.Initializers[position]; !sameSettings(first.InitializerSettings, initializer.InitializerSettings) {
				overridden = append(overridden, first)
			}
			continue
		}
		if slices.ContainsFunc(added, func(e v1alpha1.EffectiveInitializer) bool { return e.Name == initializer.Name }) {
			continue
		}
		entry := v1alpha1.EffectiveInitializer{
			Name: initializer.Name, Configuration: configuration.Name,
			InitializerSettings: *initializer.InitializerSettings.DeepCopy(),
		}
		added = append(added, entry)
		// Encoding this type cannot fail.
		encoded, _ := json.Marshal(entry)
		size += len(encoded)
	}
	return added, overridden, size
}

// sameSettings reports whether two settings are equal after defaulting.
func sameSettings(a, b v1alpha1.InitializerSettings) bool {
	for _, settings := range []*v1alpha1.InitializerSettings{&a, &b} {
		if settings.FailurePolicy == nil && settings.TimeoutSeconds != nil {
			fail := v1alpha1.InitializerFail
			settings.FailurePolicy = &fail
		}
		settings.Confinement = cmp.Or(settings.Confinement, v1alpha1.ConfinementNone)
	}
	return apiequality.Semantic.DeepEqual(a, b)
}

// MaxTemplateBytes limits TemplateSize. Without this limit, the author of an old template could displace many newer
// ones.
const MaxTemplateBytes = 16 << 10

// MaxTemplatesBytes limits the sum of TemplateSize of the templates in the set. The API server stores at most 1.5 MiB
// in an object.
const MaxTemplatesBytes = 512 << 10

// effectiveTemplate returns the part of a template that the admission policies use.
func effectiveTemplate(name string, spec *v1alpha1.NamespaceTemplateSpec) v1alpha1.EffectiveTemplate {
	spec = spec.DeepCopy()
	for i := range spec.Parameters {
		spec.Parameters[i].Description = ""
	}
	return v1alpha1.EffectiveTemplate{
		Name: name, NamespaceSelector: spec.NamespaceSelector, Access: spec.Access, Parameters: spec.Parameters,
	}
}

// TemplateSize returns the size of a template in the set without its name, in bytes.
func TemplateSize(spec *v1alpha1.NamespaceTemplateSpec) int {
	encoded, _ := json.Marshal(effectiveTemplate("", spec)) // Encoding this type cannot fail.
	return len(encoded)
}

// FitTemplates returns the templates that fit into the set, the oldest first: the author of a new template can neither
// displace older ones nor make the set too large to be written. Templates that are being deleted are omitted. The
// function size returns TemplateSize.
func FitTemplates(
	templates []v1alpha1.NamespaceTemplate, size func(*v1alpha1.NamespaceTemplate) int,
) []*v1alpha1.NamespaceTemplate {
	oldest := make([]*v1alpha1.NamespaceTemplate, 0, len(templates))
	for i := range templates {
		if templates[i].DeletionTimestamp == nil {
			oldest = append(oldest, &templates[i])
		}
	}
	slices.SortFunc(oldest, func(a, b *v1alpha1.NamespaceTemplate) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	sum := 0
	fitting := slices.DeleteFunc(oldest, func(template *v1alpha1.NamespaceTemplate) bool {
		bytes := size(template)
		if bytes > MaxTemplateBytes || sum+bytes > MaxTemplatesBytes {
			return true
		}
		sum += bytes
		return false
	})
	return fitting[:min(len(fitting), v1alpha1.MaxSetTemplates)]
}

// AddTemplates adds the initializer of templates to the list if there are templates, first unless a
// configuration names it, and returns the part of the templates that the admission policies use, sorted
// by name. It omits templates that do not fit.
func (m *Merged) AddTemplates(templates []v1alpha1.NamespaceTemplate) []v1alpha1.EffectiveTemplate {
	fitting := FitTemplates(templates, func(t *v1alpha1.NamespaceTemplate) int { return TemplateSize(&t.Spec) })
	effective := make([]v1alpha1.EffectiveTemplate, 0, len(fitting))
	for _, template := range fitting {
		effective = append(effective, effectiveTemplate(template.Name, &template.Spec))
	}
	slices.SortFunc(effective, func(a, b v1alpha1.EffectiveTemplate) int { return cmp.Compare(a.Name, b.Name) })
	isNamed := slices.Contains(Names(m.Initializers), v1alpha1.TemplatesInitializer)
	if len(effective) > 0 && !isNamed {
		// The caller's list shares its array.
		m.Initializers = slices.Concat(
			[]v1alpha1.EffectiveInitializer{{
				Name: v1alpha1.TemplatesInitializer,
				// As the API server stores it: otherwise, the operator would write the set again and again.
				InitializerSettings: v1alpha1.InitializerSettings{Confinement: v1alpha1.ConfinementNone},
			}}, m.Initializers)
	}
	return effective
}

// Names returns the names of the initializers, in order.
func Names(initializers []v1alpha1.EffectiveInitializer) []string {
	names := make([]string, 0, len(initializers))
	for _, initializer := range initializers {
		names = append(names, initializer.Name)
	}
	return names
}
