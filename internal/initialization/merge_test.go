// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// now is the current time in these tests.
var now = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func TestMerge(t *testing.T) {
	type configuration = *wrappers.ConfigurationWrapper
	const full = internalv1alpha1.MaxInitializers

	tests := map[string]struct {
		configurations []configuration
		want           []internalv1alpha1.EffectiveInitializer
		wantExcluded   []string
	}{
		"no configuration": {},
		"a configuration without initializers": {
			configurations: []configuration{wrappers.MakeConfiguration("empty")},
		},
		"the order within a configuration is preserved": {
			configurations: []configuration{
				wrappers.MakeConfiguration("one").Initializers("z.corp.com", "a.corp.com", "m.corp.com"),
			},
			want: entries("one", "z.corp.com", "a.corp.com", "m.corp.com"),
		},
		"configurations are sorted by name, byte by byte": {
			configurations: []configuration{
				wrappers.MakeConfiguration("b").Initializers("b.corp.com"),
				wrappers.MakeConfiguration("a.b").Initializers("ab.corp.com"),
				wrappers.MakeConfiguration("a-b").Initializers("a-b.corp.com"),
				wrappers.MakeConfiguration("10").Initializers("ten.corp.com"),
				wrappers.MakeConfiguration("9").Initializers("nine.corp.com"),
			},
			want: slices.Concat(entries("10", "ten.corp.com"), entries("9", "nine.corp.com"),
				entries("a-b", "a-b.corp.com"), entries("a.b", "ab.corp.com"), entries("b", "b.corp.com")),
		},
		"a repeated initializer keeps its first position": {
			configurations: []configuration{
				wrappers.MakeConfiguration("second").Initializers("quota.corp.com", "rbac.corp.com", "late.corp.com"),
				wrappers.MakeConfiguration("first").Initializers("rbac.corp.com"),
			},
			want: slices.Concat(entries("first", "rbac.corp.com"), entries("second", "quota.corp.com", "late.corp.com")),
		},
		"an initializer that a configuration contains twice is added once": {
			configurations: []configuration{
				wrappers.MakeConfiguration("one").Initializers("rbac.corp.com", "quota.corp.com", "rbac.corp.com"),
			},
			want: entries("one", "rbac.corp.com", "quota.corp.com"),
		},
		"a terminating configuration is ignored": {
			configurations: []configuration{
				wrappers.MakeConfiguration("a").Initializers("rbac.corp.com", "deleted.corp.com").Terminating(now, "x.corp.com/keep"),
				wrappers.MakeConfiguration("b").Initializers("quota.corp.com", "rbac.corp.com"),
			},
			want: entries("b", "quota.corp.com", "rbac.corp.com"),
		},
		"exactly the maximum number of initializers": {
			configurations: []configuration{
				wrappers.MakeConfiguration("a").Initializers(numbered("a", full-1)...),
				wrappers.MakeConfiguration("b").Initializers("last.corp.com"),
			},
			want: slices.Concat(entries("a", numbered("a", full-1)...), entries("b", "last.corp.com")),
		},
		"a configuration that does not fit is excluded, and a smaller one after it is included": {
			configurations: []configuration{
				wrappers.MakeConfiguration("a").Initializers(numbered("a", full-2)...),
				wrappers.MakeConfiguration("b").Initializers(numbered("b", 3)...),
				wrappers.MakeConfiguration("c").Initializers(numbered("c", 2)...),
				wrappers.MakeConfiguration("d").Initializers("d.corp.com"),
			},
			want:         slices.Concat(entries("a", numbered("a", full-2)...), entries("c", numbered("c", 2)...)),
			wantExcluded: []string{"b", "d"},
		},
		"initializers of an excluded configuration are not in the list": {
			configurations: []configuration{
				wrappers.MakeConfiguration("a").Initializers(numbered("a", full-1)...),
				wrappers.MakeConfiguration("b").Initializers("shared.corp.com", "other.corp.com"),
				wrappers.MakeConfiguration("c").Initializers("shared.corp.com"),
			},
			want:         slices.Concat(entries("a", numbered("a", full-1)...), entries("c", "shared.corp.com")),
			wantExcluded: []string{"b"},
		},
		"initializers that are already in the list do not count toward the maximum": {
			configurations: []configuration{
				wrappers.MakeConfiguration("a").Initializers(numbered("a", full)...),
				wrappers.MakeConfiguration("b").Initializers(numbered("a", full)...),
				wrappers.MakeConfiguration("c"),
			},
			want: entries("a", numbered("a", full)...),
		},
		"a single configuration that is too large is excluded": {
			configurations: []configuration{
				wrappers.MakeConfiguration("a").Initializers(numbered("a", full+1)...),
				wrappers.MakeConfiguration("b").Initializers("b.corp.com"),
			},
			want:         entries("b", "b.corp.com"),
			wantExcluded: []string{"a"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var configurations []v1alpha1.NamespaceInitializerConfiguration
			for _, configuration := range test.configurations {
				configurations = append(configurations, *configuration.Obj())
			}
			merged := Merge(configurations, nil)
			g.Expect(merged.Initializers).To(Equal(test.want))
			g.Expect(merged.Excluded).To(Equal(test.wantExcluded))

			slices.Reverse(configurations)
			g.Expect(Merge(configurations, nil)).To(Equal(merged), "in reverse order")
		})
	}
}

func TestMergeDoesNotDependOnTheOrderOrChangeItsArgument(t *testing.T) {
	g := NewWithT(t)
	a := *wrappers.MakeConfiguration("a").Initializers("rbac.corp.com", "quota.corp.com").Obj()
	b := *wrappers.MakeConfiguration("b").Initializers("quota.corp.com", "network.corp.com").Obj()
	c := *wrappers.MakeConfiguration("c").Initializers("secrets.corp.com", "rbac.corp.com").Obj()
	type list = []v1alpha1.NamespaceInitializerConfiguration
	want := slices.Concat(entries("a", "rbac.corp.com", "quota.corp.com"),
		entries("b", "network.corp.com"), entries("c", "secrets.corp.com"))

	for _, given := range []list{{a, b, c}, {a, c, b}, {b, a, c}, {b, c, a}, {c, a, b}, {c, b, a}} {
		before := slices.Clone(given)
		g.Expect(Merge(given, nil).Initializers).To(Equal(want))
		g.Expect(given).To(Equal(before), "the argument must not change")
	}
}

// The first settings of an initializer are used, and configurations with other settings are
// reported.
func TestMergeSettings(t *testing.T) {
	seconds := int32(60)
	type settings = v1alpha1.InitializerSettings
	team := &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"team": "a"}}
	withPolicy := func(policy v1alpha1.FailurePolicy) settings {
		return settings{TimeoutSeconds: &seconds, FailurePolicy: policy}
	}
	withDefaults := func(of settings) settings {
		defaults := v1alpha1.DefaultInitializerSettings()
		of.FailurePolicy, of.Confinement = cmp.Or(of.FailurePolicy, defaults.FailurePolicy), defaults.Confinement
		of.NamespaceSelector = cmp.Or(of.NamespaceSelector, defaults.NamespaceSelector)
		return of
	}
	timeout := withPolicy("")
	for name, test := range map[string]struct {
		first, second  settings
		wantOverridden bool
	}{
		"none":          {},
		"same settings": {first: settings{NamespaceSelector: team}, second: settings{NamespaceSelector: team.DeepCopy()}},
		"finalizer only in the first configuration":  {first: settings{NamespaceFinalizer: "a.b/c"}, wantOverridden: true},
		"finalizer only in the second configuration": {second: settings{NamespaceFinalizer: "a.b/c"}, wantOverridden: true},
		"another finalizer":                          {first: settings{NamespaceFinalizer: "a.b/c"}, second: settings{NamespaceFinalizer: "a.b/d"}, wantOverridden: true},
		"another selector":                           {first: settings{NamespaceSelector: team}, second: timeout, wantOverridden: true},
		"explicit Ignore, which is not the default":  {first: timeout, second: withPolicy(v1alpha1.FailurePolicyIgnore), wantOverridden: true},
		"no timeout": {first: timeout, wantOverridden: true},
		"all settings differ": {
			first: settings{
				TimeoutSeconds: &seconds, FailurePolicy: v1alpha1.FailurePolicyIgnore, NamespaceFinalizer: "a.b/c",
				NamespaceSelector: team,
			},
			wantOverridden: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			first := *wrappers.MakeConfiguration("a").Initializer("rbac.corp.com", test.first).Obj()
			second := *wrappers.MakeConfiguration("b").Initializers("quota.corp.com").Initializer("rbac.corp.com", test.second).Obj()
			before := first.DeepCopy()
			merged := Merge([]v1alpha1.NamespaceInitializerConfiguration{second, first}, nil)
			want := internalv1alpha1.EffectiveInitializer{Name: "rbac.corp.com", Configuration: "a", InitializerSettings: withDefaults(test.first)}
			g.Expect(merged.Initializers).To(Equal(append([]internalv1alpha1.EffectiveInitializer{want}, entries("b", "quota.corp.com")...)))
			if test.wantOverridden {
				g.Expect(merged.Overridden).To(Equal(map[string][]internalv1alpha1.EffectiveInitializer{"b": {want}}))
			} else {
				g.Expect(merged.Overridden).To(BeEmpty())
			}
			if selector := merged.Initializers[0].NamespaceSelector; selector.MatchLabels != nil {
				selector.MatchLabels["team"] = "changed"
				g.Expect(first).To(Equal(*before), "the argument must not change")
				selector.MatchLabels["team"] = "a"
			}
		})
	}
}

// The set must stay below the size that the API server can store.
func TestMergeExcludesWhatIsTooLarge(t *testing.T) {
	g := NewWithT(t)
	long := strings.Repeat("x", 63)
	large := func(name string, count int) v1alpha1.NamespaceInitializerConfiguration {
		configuration := wrappers.MakeConfiguration(name)
		for i := range count {
			selector := &v1alpha1.NamespaceSelector{}
			for range 16 {
				requirement := v1alpha1.NamespaceSelectorRequirement{Key: long, Operator: "NotIn"}
				for range 32 {
					requirement.Values = append(requirement.Values, v1alpha1.LabelValue(long))
				}
				selector.MatchExpressions = append(selector.MatchExpressions, requirement)
			}
			configuration.Initializer(fmt.Sprintf("i%d.%s.corp.com", i, name),
				v1alpha1.InitializerSettings{NamespaceSelector: selector})
		}
		return *configuration.Obj()
	}
	merged := Merge([]v1alpha1.NamespaceInitializerConfiguration{
		large("a", 8), large("b", 10), large("c", 4), *wrappers.MakeConfiguration("d").Initializers("d.corp.com").Obj(),
	}, nil)
	g.Expect(merged.Excluded).To(Equal([]string{"b"}))
	g.Expect(merged.TooLarge).To(Equal([]string{"b"}))
	g.Expect(merged.Initializers).To(HaveLen(8 + 4 + 1))
	encoded, err := json.Marshal(merged.Initializers)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(encoded)).To(BeNumerically("<", maxSetBytes+1024))
}

func TestMergeWaitingSubjects(t *testing.T) {
	g := NewWithT(t)
	waiting := func(name string, subjects ...string) v1alpha1.NamespaceInitializerConfiguration {
		configuration := wrappers.MakeConfiguration(name).Obj()
		for _, subject := range subjects {
			configuration.WaitingSubjects = append(configuration.WaitingSubjects,
				v1alpha1.Subject{Kind: v1alpha1.SubjectUser, Name: subject})
		}
		return *configuration
	}
	fromRBAC := waiting("d", "x")
	fromRBAC.WaitingSubjects[0].APIGroup = rbacv1.GroupName
	fromRBAC.Initializers = []v1alpha1.NamespaceInitializer{{Name: "rbac.corp.com", InitializerSettings: v1alpha1.InitializerSettings{
		Subjects: fromRBAC.WaitingSubjects,
	}}}
	merged := Merge([]v1alpha1.NamespaceInitializerConfiguration{
		fromRBAC, waiting("b", "y", "x"), waiting("a", "x", "z"), waiting("c", numbered("user", internalv1alpha1.MaxWaitingSubjects)...),
	}, nil)
	g.Expect(merged.WaitingSubjects).To(Equal(waiting("", "x", "y", "z").WaitingSubjects))
	g.Expect(merged.TooLarge).To(Equal([]string{"c"}))
	g.Expect(merged.Initializers[0].Subjects).To(Equal(waiting("", "x").WaitingSubjects))
	g.Expect(fromRBAC.WaitingSubjects[0].APIGroup).NotTo(BeEmpty(), "a configuration from the cache")
}

func TestMergeConfinedSubjects(t *testing.T) {
	g := NewWithT(t)
	confined := func(name string, count int, confinement v1alpha1.InitializerConfinement) v1alpha1.NamespaceInitializerConfiguration {
		configuration := wrappers.MakeConfiguration(name)
		for i := range count {
			settings := v1alpha1.InitializerSettings{Confinement: confinement}
			for k := range 16 {
				settings.Subjects = append(settings.Subjects, v1alpha1.Subject{
					Kind: v1alpha1.SubjectServiceAccount, Namespace: "system", Name: fmt.Sprintf("%d-%d-%s", i, k, strings.Repeat("x", 240)),
				})
			}
			configuration.Initializer(fmt.Sprintf("i%d.%s.corp.com", i, name), settings)
		}
		return *configuration.Obj()
	}
	merged := Merge([]v1alpha1.NamespaceInitializerConfiguration{
		confined("a", 10, v1alpha1.ConfinementInitializingNamespaces),
		confined("b", 10, v1alpha1.ConfinementInitializingNamespaces),
		confined("c", 10, v1alpha1.ConfinementNone),
	}, nil)
	g.Expect(merged.TooLarge).To(BeEmpty(), "the same subjects")
	merged = Merge([]v1alpha1.NamespaceInitializerConfiguration{
		confined("a", 30, v1alpha1.ConfinementInitializingNamespaces), confined("b", 30, v1alpha1.ConfinementNone),
	}, nil)
	g.Expect(merged.TooLarge).To(Equal([]string{"a"}))
}

func TestNames(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Names(nil)).To(BeEmpty())
	g.Expect(Names(entries("x", "b.corp.com", "a.corp.com"))).To(Equal([]string{"b.corp.com", "a.corp.com"}))
}

func entries(configuration string, names ...string) []internalv1alpha1.EffectiveInitializer {
	list := make([]internalv1alpha1.EffectiveInitializer, 0, len(names))
	for _, name := range names {
		list = append(list, internalv1alpha1.EffectiveInitializer{
			Name: name, Configuration: configuration, InitializerSettings: v1alpha1.DefaultInitializerSettings(),
		})
	}
	return list
}

func numbered(prefix string, count int) []string {
	names := make([]string, 0, count)
	for i := range count {
		names = append(names, fmt.Sprintf("%s-%d.corp.com", prefix, i))
	}
	return names
}

func TestAddTemplates(t *testing.T) {
	created := func(name string, age time.Duration) v1alpha1.NamespaceTemplate {
		return v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{
			Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age)),
		}}
	}
	full := func() []v1alpha1.NamespaceTemplate {
		templates := []v1alpha1.NamespaceTemplate{created("mandatory", time.Hour)}
		for i := range internalv1alpha1.MaxTemplates - 1 {
			templates = append(templates, created(fmt.Sprintf("b%03d", i), time.Minute))
		}
		return templates
	}
	large := created("large", time.Second)
	for i := range 32 {
		large.Spec.Parameters = append(large.Spec.Parameters, v1alpha1.TemplateParameter{
			Name: fmt.Sprintf("p%d", i), Enum: slices.Repeat([]string{strings.Repeat("語", 253)}, 32),
		})
	}
	// largest returns templates that together have the maximum size.
	largest := func() []v1alpha1.NamespaceTemplate {
		var templates []v1alpha1.NamespaceTemplate
		for i := range templateset.MaxBytes / templateset.MaxTemplateBytes {
			template := created(fmt.Sprintf("b%03d", i), time.Minute)
			template.Spec.Parameters = []v1alpha1.TemplateParameter{{Name: "p"}}
			filler := strings.Repeat("x", templateset.MaxTemplateBytes-templateset.Size(&template.Spec)-len(`,"pattern":""`))
			template.Spec.Parameters[0].Pattern = filler
			templates = append(templates, template)
		}
		return templates
	}
	deleted := created("a", 2*time.Hour)
	deleted.DeletionTimestamp = &metav1.Time{Time: now}
	tests := map[string]struct {
		templates []v1alpha1.NamespaceTemplate
		added     []string
		// omitted is the name of a template that is not added.
		omitted string
		want    int
	}{
		"no template":                {},
		"a template that is deleted": {templates: []v1alpha1.NamespaceTemplate{deleted}, omitted: "a"},
		"as many as possible":        {templates: append(full(), deleted), added: []string{"mandatory", "b126"}, want: 128},
		"a new one does not displace older ones": {
			templates: append(full(), created("a", 0)), added: []string{"mandatory", "b126"}, omitted: "a", want: 128,
		},
		"a large one does not displace others": {
			templates: []v1alpha1.NamespaceTemplate{created("a", 0), large, created("b", time.Minute)},
			added:     []string{"a", "b"}, omitted: "large", want: 2,
		},
		"the largest templates": {templates: append(largest(), deleted), added: []string{"b000", "b031"}, want: 32},
		"a new one does not displace large ones": {
			templates: append(largest(), created("a", 0)), added: []string{"b000", "b031"}, omitted: "a", want: 32,
		},
		"the name decides if they are equally old": {
			templates: append(full(), created("c", time.Minute)), added: []string{"mandatory", "b126"}, omitted: "c",
			want: 128,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, configured := NewWithT(t), make([]internalv1alpha1.EffectiveInitializer, 1, 2)
			configured[0].Name = "a.corp.com"
			merged := Merged{Initializers: configured}
			var names []string
			for _, template := range merged.AddTemplates(test.templates, nil) {
				names = append(names, template.Name)
			}
			g.Expect(names).To(HaveLen(test.want))
			g.Expect(slices.IsSorted(names)).To(BeTrue())
			g.Expect(names).To(ContainElements(test.added))
			g.Expect(names).NotTo(ContainElement(test.omitted))
			g.Expect(Names(merged.Initializers)).To(HaveLen(1 + min(test.want, 1)))
			g.Expect(Names(configured)).To(Equal([]string{"a.corp.com"}), "the caller's list must not change")
		})
	}
}
