// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cases contains requests for Namespaces and their expected results. The policies inject and complete,
// and their implementation in Go, must both pass them.
package cases

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

// SystemNamespace is the namespace of the operator, and SourceNamespace that of the sources of copies.
const (
	SystemNamespace = "nslifecycle-system"
	SourceNamespace = "nslifecycle-sources"
)

const (
	team    = "team"
	tier    = "corp.example.com/tier"
	inNames = corev1.LabelMetadataName
	domain  = ".cases.example.com"
	// chosen, gold, shop, zoneA and zoneB are the names of the templates.
	chosen, gold, shop = "cases-chosen", "cases-gold", "cases-shop"
	zoneA, zoneB       = "cases-zone-a", "cases-zone-b"

	// limited is an initializer with a deadline, and the key of the label that selects its namespaces.
	limited = "limited"

	finalizerAll  = "cases.example.com/all"
	finalizerTier = "cases.example.com/tier"
	finalizerShop = "cases.example.com/shop"
)

type settings = v1alpha1.InitializerSettings

func expression(key string, operator metav1.LabelSelectorOperator, values ...v1alpha1.LabelValue) *v1alpha1.NamespaceSelector {
	return &v1alpha1.NamespaceSelector{MatchExpressions: []v1alpha1.NamespaceSelectorRequirement{
		{Key: key, Operator: operator, Values: values},
	}}
}

func label(key string, value v1alpha1.LabelValue) *v1alpha1.NamespaceSelector {
	return &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{key: value}}
}

// Configurations returns the registered initializers. They use every operator of selectors.
func Configurations() []v1alpha1.NamespaceInitializerConfiguration {
	const (
		in, notIn       = metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn
		exists, missing = metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist
	)
	both := label(team, "a")
	both.MatchExpressions = expression(tier, in, "gold").MatchExpressions
	return []v1alpha1.NamespaceInitializerConfiguration{
		configuration("cases-0", initializer(limited, settings{
			TimeoutSeconds: ptr.To[int32](86400), FailurePolicy: v1alpha1.FailurePolicyFail,
			NamespaceSelector: expression(limited, exists),
		})),
		configuration("cases-1",
			initializer("all", settings{NamespaceFinalizer: finalizerAll, Subjects: []v1alpha1.Subject{
				{Kind: v1alpha1.SubjectKind("User"), Name: Initializer},
			}}),
			initializer("tier", settings{NamespaceFinalizer: finalizerTier, NamespaceSelector: expression(tier, in, "silver", "gold")}),
			initializer("not-a", settings{NamespaceSelector: expression(team, notIn, "a")}),
			initializer("team", settings{NamespaceFinalizer: finalizerTier, NamespaceSelector: expression(team, exists)}),
			initializer("both", settings{NamespaceSelector: both}),
		),
		configuration("cases-2",
			initializer("all", settings{NamespaceSelector: label(team, "never")}),
			v1alpha1.NamespaceInitializer{
				Name: v1alpha1.TemplatesInitializer, InitializerSettings: v1alpha1.DefaultInitializerSettings(),
			},
			initializer("no-team", settings{NamespaceSelector: expression(team, missing)}),
			initializer("shop", settings{NamespaceSelector: expression(inNames, in, "shop")}),
			initializer("not-shop", settings{NamespaceSelector: expression(inNames, notIn, "shop")}),
			initializer("named", settings{NamespaceSelector: expression(inNames, exists)}),
			initializer("nameless", settings{NamespaceSelector: expression(inNames, missing)}),
			initializer("shop-label", settings{NamespaceFinalizer: finalizerShop, NamespaceSelector: label(inNames, "shop")}),
			initializer("protected", settings{NamespaceSelector: expression(v1alpha1.LabelDeletionProtection, exists)}),
		),
	}
}

func configuration(name string, initializers ...v1alpha1.NamespaceInitializer) v1alpha1.NamespaceInitializerConfiguration {
	return v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Initializers: initializers}
}

func initializer(name string, settings settings) v1alpha1.NamespaceInitializer {
	if settings.NamespaceSelector == nil {
		settings.NamespaceSelector = &v1alpha1.NamespaceSelector{}
	}
	return v1alpha1.NamespaceInitializer{Name: name + domain, InitializerSettings: settings}
}

// Templates returns the templates. Their ServiceAccount does not exist, so the operator never applies them.
func Templates() []v1alpha1.NamespaceTemplate {
	parameter := func(name, value string) v1alpha1.TemplateParameter {
		return v1alpha1.TemplateParameter{Name: name, Default: &value}
	}
	inZone := template(zoneA, label("zoned", "a"), parameter("size", "small"),
		v1alpha1.TemplateParameter{Name: "color", LabelKey: "color"}, v1alpha1.TemplateParameter{Name: "note"})
	inZone.Spec.Metadata = &v1alpha1.TemplateMetadata{
		Labels: map[string]v1alpha1.TemplateMetadataValue{
			"zone": "a", "unit": "u-${params.color}", "empty": "", "corp.example.com/size": "${params.size}.${params.size}",
			"noted": "x${params.note}",
		},
		Annotations: map[string]v1alpha1.TemplateMetadataValue{
			"corp.example.com/by": "by ${requestedBy}: $${x} $", "noted": "${params.note}",
		},
	}
	alsoInZone := template(zoneB, label("zoned", "a"))
	alsoInZone.Spec.Metadata = &v1alpha1.TemplateMetadata{
		Labels:      map[string]v1alpha1.TemplateMetadataValue{"zone": "b", "only-b": "b"},
		Annotations: map[string]v1alpha1.TemplateMetadataValue{"noted": "by b"},
	}
	return []v1alpha1.NamespaceTemplate{
		inZone, alsoInZone,
		template(chosen, nil, parameter("size", "small"), parameter("region", "eu"),
			v1alpha1.TemplateParameter{Name: "team", LabelKey: team}),
		template(gold, expression(tier, metav1.LabelSelectorOpIn, "gold"), parameter("size", "large"),
			parameter("team", "from-gold"), parameter("empty", ""), v1alpha1.TemplateParameter{Name: "note"}),
		template(shop, label(inNames, "shop"), parameter("aisle", "7")),
	}
}

func template(
	name string, selector *v1alpha1.NamespaceSelector, parameters ...v1alpha1.TemplateParameter,
) v1alpha1.NamespaceTemplate {
	const object = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cases"}}`
	return v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NamespaceTemplateSpec{
		NamespaceSelector: selector, ServiceAccountName: "absent", Parameters: parameters,
		Objects: []v1alpha1.TemplateObject{{Name: "cases", Template: &runtime.RawExtension{Raw: []byte(object)}}},
	}}
}

// Set returns the effective set of the configurations and templates.
func Set() *internalv1alpha1.NamespaceInitializerSet {
	merged := initialization.Merge(Configurations(), nil)
	templates := merged.AddTemplates(Templates(), nil)
	return &internalv1alpha1.NamespaceInitializerSet{
		ObjectMeta:   metav1.ObjectMeta{Name: internalv1alpha1.EffectiveSetName, Generation: 1},
		Initializers: merged.Initializers, Templates: templates, SystemNamespace: SystemNamespace,
		SourceNamespace: SourceNamespace,
	}
}

// pending returns a list of initializers. The initializer of templates is "templates".
func pending(names string) string {
	var full []string
	for name := range strings.FieldsSeq(names) {
		if name == "templates" {
			full = append(full, v1alpha1.TemplatesInitializer)
		} else {
			full = append(full, name+domain)
		}
	}
	return strings.Join(full, ",")
}
