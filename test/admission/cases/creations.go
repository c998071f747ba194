// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// The users of the cases. Only Initializer may initialize namespaces.
const (
	Ordinary    = "alice@corp.example.com"
	Initializer = "initializer@corp.example.com"
)

// Creation is a request that creates a Namespace.
type Creation struct {
	// Name is empty for a generateName.
	Name string
	User string
	// Labels, Annotations and Finalizers are those in the request.
	Labels, Annotations map[string]string
	Finalizers          []corev1.FinalizerName
	// Want are the labels, annotations and finalizers of the result. They do not contain the label
	// kubernetes.io/metadata.name and the finalizer "kubernetes", which the API server adds.
	Want Object
}

// Object is the part of a Namespace that the policies change.
type Object struct {
	Labels, Annotations map[string]string
	Finalizers          []corev1.FinalizerName
}

// Request returns the Namespace in the request, without defaults.
func (c *Creation) Request() *corev1.Namespace {
	namespace := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: c.Name, Labels: maps.Clone(c.Labels), Annotations: maps.Clone(c.Annotations),
		},
		Spec: corev1.NamespaceSpec{Finalizers: append([]corev1.FinalizerName(nil), c.Finalizers...)},
	}
	if c.Name == "" {
		namespace.GenerateName = "cases-"
	}
	return namespace
}

type pairs = map[string]string

func merge(all ...pairs) pairs {
	merged := pairs{}
	for _, some := range all {
		maps.Copy(merged, some)
	}
	return merged
}

const (
	// The initializers of a Namespace without labels: with any name but shop, and with the name shop.
	usual     = "all not-a no-team not-shop named"
	usualShop = "all not-a templates no-team shop named shop-label"
)

// initializing returns the label and the user's labels.
func initializing(labels pairs) pairs {
	return merge(labels, pairs{v1alpha1.LabelInitializing: "true"})
}

// state returns the annotations that inject adds, and other ones.
func state(user, names string, annotations ...pairs) pairs {
	return merge(merge(annotations...), pairs{
		v1alpha1.AnnotationPendingInitializers: pending(names), v1alpha1.AnnotationInitializers: pending(names),
		v1alpha1.AnnotationRequestedBy: user,
	})
}

func selectedTemplates(names ...string) pairs {
	return pairs{v1alpha1.AnnotationSelectedTemplates: strings.Join(names, ",")}
}

func parameters(namesAndValues ...string) pairs {
	result := pairs{}
	for i := 0; i < len(namesAndValues); i += 2 {
		result[v1alpha1.PrefixParameter+namesAndValues[i]] = namesAndValues[i+1]
	}
	return result
}

func want(labels, annotations pairs, finalizers ...corev1.FinalizerName) Object {
	return Object{Labels: labels, Annotations: annotations, Finalizers: finalizers}
}

// forged are keys that inject removes.
func forgedLabels() pairs {
	return pairs{
		v1alpha1.Prefix + "x": "a", v1alpha1.Prefix + "policy": "inject", v1alpha1.Prefix + "deletion-protection2": "",
		v1alpha1.Prefix + "templates": "",
	}
}

func forgedAnnotations() pairs {
	return pairs{
		v1alpha1.AnnotationPendingInitializers: "x.example.com", v1alpha1.AnnotationInitializers: "x.example.com",
		v1alpha1.AnnotationRequestedBy: "admin", v1alpha1.AnnotationSelectedTemplates: chosen,
		v1alpha1.AnnotationAppliedTemplates: "{}", v1alpha1.AnnotationInitializationResult: `{"status":"Failure"}`,
		v1alpha1.AnnotationTurnStartedAt:        forgedTurn,
		v1alpha1.Prefix + "deletion-protection": "", v1alpha1.Prefix + "template": chosen,
	}
}

// Creations returns the cases by description.
func Creations() map[string]Creation {
	withAll := []corev1.FinalizerName{finalizerAll}
	gold0 := pairs{tier: "gold"}
	goldParameters := parameters("size", "large", "team", "from-gold", "empty", "")
	zoned := pairs{"zoned": "a", "zone": "a", "empty": "", "corp.example.com/size": "small.small", "only-b": "b"}
	const zonedNames = "all not-a templates no-team not-shop named"
	const goldNames = "all tier not-a templates no-team not-shop named"
	account := "system:serviceaccount:shop:deployer"
	similar := pairs{v1alpha1.LabelDeletionProtection + "-x": "x", v1alpha1.Prefix + "templat": "x"}
	return map[string]Creation{
		"no labels": {Name: "web", User: Ordinary, Want: want(initializing(nil), state(Ordinary, usual), withAll...)},
		"other labels and annotations": {
			Name: "web", User: Ordinary, Labels: pairs{"app": "web", "Team": "a", "a.b/c_d": ""},
			Annotations: pairs{"a.b/c_d": "<\"&'>\n", "empty": ""},
			Want: want(initializing(pairs{"app": "web", "Team": "a", "a.b/c_d": ""}),
				state(Ordinary, usual, pairs{"a.b/c_d": "<\"&'>\n", "empty": ""}), withAll...),
		},
		"only annotations": {
			Name: "web", User: Ordinary, Annotations: pairs{"note": "x"},
			Want: want(initializing(nil), state(Ordinary, usual, pairs{"note": "x"}), withAll...),
		},
		"a ServiceAccount": {Name: "web", User: account, Want: want(initializing(nil), state(account, usual), withAll...)},
		"a user name with special characters": {
			Name: "web", User: `o"brien, <ü>,a~b/c`,
			Want: want(initializing(nil), state(`o"brien, <ü>,a~b/c`, usual), withAll...),
		},
		"a user who may initialize": {
			Name: "web", User: Initializer, Want: want(initializing(nil), state(Initializer, usual), withAll...),
		},

		// Names.
		"default":              {Name: "default", User: Ordinary, Labels: pairs{"a": "b"}, Want: want(pairs{"a": "b"}, nil)},
		"kube-system":          {Name: "kube-system", User: Ordinary, Want: want(nil, nil)},
		"kube-public":          {Name: "kube-public", User: Ordinary, Labels: gold0, Want: want(gold0, nil)},
		"kube-node-lease":      {Name: "kube-node-lease", User: Ordinary, Finalizers: []corev1.FinalizerName{"a.b/c"}, Want: want(nil, nil, "a.b/c")},
		"the system namespace": {Name: SystemNamespace, User: Ordinary, Want: want(nil, nil)},
		"the source namespace": {Name: SourceNamespace, User: Ordinary, Want: want(nil, nil)},
		"a similar name":       {Name: "kube-systems", User: Ordinary, Want: want(initializing(nil), state(Ordinary, usual), withAll...)},
		"another kube name":    {Name: "kube-flannel", User: Ordinary, Want: want(initializing(nil), state(Ordinary, usual), withAll...)},
		"forged keys in an exempt namespace": {
			Name: "default", User: Ordinary, Annotations: merge(forgedAnnotations(), pairs{"a": "b"}),
			Labels: merge(forgedLabels(), pairs{v1alpha1.LabelInitializing: "true", "a": "b"}),
			Want:   want(pairs{"a": "b"}, pairs{"a": "b"}),
		},
		"a template in an exempt namespace": {
			Name: "default", User: Ordinary, Labels: pairs{v1alpha1.LabelTemplate: chosen},
			Want: want(pairs{v1alpha1.LabelTemplate: chosen}, nil),
		},
		"a generateName": {User: Ordinary, Want: want(initializing(nil), state(Ordinary, usual), withAll...)},
		"a generateName and a forged name": {
			User: Ordinary, Labels: pairs{inNames: "shop"},
			Want: want(initializing(nil), state(Ordinary, usual), withAll...),
		},
		"a generateName and the forged name of an exempt namespace": {
			User: Ordinary, Labels: pairs{inNames: "kube-system"},
			Want: want(initializing(nil), state(Ordinary, usual), withAll...),
		},
		"a generateName and a template": {
			User: Ordinary, Labels: gold0,
			Want: want(initializing(gold0), state(Ordinary, goldNames, selectedTemplates(gold), goldParameters), finalizerAll, finalizerTier),
		},
		"a selected name": {
			Name: "shop", User: Ordinary,
			Want: want(initializing(nil), state(Ordinary, usualShop, selectedTemplates(shop), parameters("aisle", "7")),
				finalizerAll, finalizerShop),
		},
		"another name in the label": {
			Name: "web", User: Ordinary, Labels: pairs{inNames: "shop"},
			Want: want(initializing(nil), state(Ordinary, usual), withAll...),
		},

		// Selectors.
		"a label with another value": {
			Name: "web", User: Ordinary, Labels: pairs{team: "b"},
			Want: want(initializing(pairs{team: "b"}), state(Ordinary, "all not-a team not-shop named"), finalizerAll, finalizerTier),
		},
		"a label that NotIn lists": {
			Name: "web", User: Ordinary, Labels: pairs{team: "a"},
			Want: want(initializing(pairs{team: "a"}), state(Ordinary, "all team not-shop named"), finalizerAll, finalizerTier),
		},
		"a label without a value": {
			Name: "web", User: Ordinary, Labels: pairs{team: "", tier: ""},
			Want: want(initializing(pairs{team: "", tier: ""}), state(Ordinary, "all not-a team not-shop named"), finalizerAll, finalizerTier),
		},
		"a label that In lists": {
			Name: "web", User: Ordinary, Labels: pairs{tier: "silver"},
			Want: want(initializing(pairs{tier: "silver"}), state(Ordinary, "all tier not-a no-team not-shop named"), finalizerAll, finalizerTier),
		},
		"a value in other letters": {
			Name: "web", User: Ordinary, Labels: pairs{tier: "Gold", team: "A"},
			Want: want(initializing(pairs{tier: "Gold", team: "A"}), state(Ordinary, "all not-a team not-shop named"), finalizerAll, finalizerTier),
		},
		"both labels": {
			Name: "web", User: Ordinary, Labels: pairs{tier: "gold", team: "a"},
			Want: want(initializing(pairs{tier: "gold", team: "a"}),
				state(Ordinary, "all tier team both templates not-shop named", selectedTemplates(gold), goldParameters),
				finalizerAll, finalizerTier),
		},
		"deletion protection": {
			Name: "web", User: Ordinary, Labels: pairs{v1alpha1.LabelDeletionProtection: "any"},
			Want: want(initializing(pairs{v1alpha1.LabelDeletionProtection: "any"}), state(Ordinary, usual+" protected"), withAll...),
		},
		"an annotation instead of a label": {
			Name: "web", User: Ordinary, Annotations: pairs{v1alpha1.LabelDeletionProtection: "x"},
			Want: want(initializing(nil), state(Ordinary, usual), withAll...),
		},
		"keys that begin like those of users": {
			Name: "web", User: Ordinary, Labels: similar, Annotations: similar,
			Want: want(initializing(nil), state(Ordinary, usual), withAll...),
		},

		// Forged keys.
		"forged labels": {
			Name: "web", User: Ordinary, Labels: merge(forgedLabels(), pairs{"a": "b"}),
			Want: want(initializing(pairs{"a": "b"}), state(Ordinary, usual), withAll...),
		},
		"only forged labels": {
			Name: "web", User: Ordinary, Labels: forgedLabels(), Want: want(initializing(nil), state(Ordinary, usual), withAll...),
		},
		"another forged value of the label": {
			Name: "web", User: Ordinary, Labels: pairs{v1alpha1.LabelInitializing: "false"},
			Want: want(initializing(nil), state(Ordinary, usual), withAll...),
		},
		"forged annotations": {
			Name: "web", User: Ordinary, Annotations: merge(forgedAnnotations(), pairs{"a": "b"}),
			Want: want(initializing(nil), state(Ordinary, usual, pairs{"a": "b"}), withAll...),
		},
		"only forged annotations": {
			Name: "web", User: Ordinary, Annotations: forgedAnnotations(),
			Want: want(initializing(nil), state(Ordinary, usual), withAll...),
		},
		"a complete forged state": {
			Name: "web", User: Ordinary, Labels: pairs{v1alpha1.LabelInitializing: "true"}, Annotations: forgedAnnotations(),
			Want: want(initializing(nil), state(Ordinary, usual), withAll...),
		},
		"an empty forged list": {
			Name: "web", User: Ordinary, Annotations: pairs{v1alpha1.AnnotationPendingInitializers: ""},
			Want: want(initializing(nil), state(Ordinary, usual), withAll...),
		},
		"forged keys with special characters": {
			Name: "web", User: Ordinary, Annotations: pairs{
				v1alpha1.Prefix + "a~b": "x", v1alpha1.Prefix + "a/b": "x", v1alpha1.Prefix + "a~1b": "x",
				v1alpha1.Prefix: "x", v1alpha1.Prefix + "\"<\\>\n": "x", v1alpha1.Prefix + strings.Repeat("a", 600): "x",
			},
			Want: want(initializing(nil), state(Ordinary, usual), withAll...),
		},
		"a large forged annotation": {
			Name: "web", User: Ordinary, Annotations: pairs{v1alpha1.Prefix + "x": strings.Repeat("<", 300<<10), "a": "b"},
			Want: want(initializing(nil), state(Ordinary, usual, pairs{"a": "b"}), withAll...),
		},
		"similar keys": {
			Name: "web", User: Ordinary,
			Labels:      pairs{"x.nslifecycle.dev/initializing": "a", "nslifecycle.dev": "a", "nslifecycle.development/a": "a"},
			Annotations: pairs{"x.nslifecycle.dev/template": "a", "NSlifecycle.dev": "a"},
			Want: want(initializing(pairs{"x.nslifecycle.dev/initializing": "a", "nslifecycle.dev": "a", "nslifecycle.development/a": "a"}),
				state(Ordinary, usual, pairs{"x.nslifecycle.dev/template": "a", "NSlifecycle.dev": "a"}), withAll...),
		},
		"forged keys with a generateName": {
			User: Ordinary, Labels: forgedLabels(), Annotations: forgedAnnotations(),
			Want: want(initializing(nil), state(Ordinary, usual), withAll...),
		},

		// Finalizers.
		"other finalizers": {
			Name: "web", User: Ordinary, Finalizers: []corev1.FinalizerName{"z.example.com/z", "a.example.com/a"},
			Want: want(initializing(nil), state(Ordinary, usual), "z.example.com/z", "a.example.com/a", finalizerAll),
		},
		"a finalizer of an initializer": {
			Name: "web", User: Ordinary, Labels: pairs{team: "a"}, Finalizers: []corev1.FinalizerName{finalizerTier, "kubernetes"},
			Want: want(initializing(pairs{team: "a"}), state(Ordinary, "all team not-shop named"), finalizerTier, "kubernetes", finalizerAll),
		},
		"all finalizers of initializers": {
			Name: "web", User: Ordinary, Finalizers: withAll, Want: want(initializing(nil), state(Ordinary, usual), withAll...),
		},

		// Templates.
		"a chosen template": {
			Name: "web", User: Ordinary, Labels: pairs{v1alpha1.LabelTemplate: chosen},
			Want: want(initializing(pairs{v1alpha1.LabelTemplate: chosen}),
				state(Ordinary, "all not-a templates no-team not-shop named", selectedTemplates(chosen), parameters("size", "small", "region", "eu")),
				withAll...),
		},
		"a template for a label": {
			Name: "web", User: Ordinary, Labels: gold0,
			Want: want(initializing(gold0), state(Ordinary, goldNames, selectedTemplates(gold), goldParameters), finalizerAll, finalizerTier),
		},
		"parameters in the request": {
			Name: "web", User: Ordinary, Labels: gold0, Annotations: parameters("size", "huge", "empty", "x", "note", "y"),
			Want: want(initializing(gold0), state(Ordinary, goldNames, selectedTemplates(gold),
				parameters("size", "huge", "empty", "x", "note", "y", "team", "from-gold")), finalizerAll, finalizerTier),
		},
		"an empty parameter in the request": {
			Name: "web", User: Ordinary, Labels: gold0, Annotations: parameters("size", "", "team", ""),
			Want: want(initializing(gold0), state(Ordinary, goldNames, selectedTemplates(gold),
				parameters("size", "", "team", "", "empty", "")), finalizerAll, finalizerTier),
		},
		"two templates": {
			Name: "web", User: Ordinary, Labels: merge(gold0, pairs{v1alpha1.LabelTemplate: chosen}),
			Want: want(initializing(merge(gold0, pairs{v1alpha1.LabelTemplate: chosen})),
				state(Ordinary, goldNames, selectedTemplates(chosen, gold), goldParameters, parameters("size", "small", "region", "eu")),
				finalizerAll, finalizerTier),
		},
		"three templates": {
			Name: "shop", User: Ordinary, Labels: merge(gold0, pairs{v1alpha1.LabelTemplate: chosen, team: "a"}),
			Want: want(initializing(merge(gold0, pairs{v1alpha1.LabelTemplate: chosen, team: "a"})),
				state(Ordinary, "all tier team both templates shop named shop-label", selectedTemplates(chosen, gold, shop),
					goldParameters, parameters("size", "small", "region", "eu", "aisle", "7")),
				finalizerAll, finalizerTier, finalizerShop),
		},
		"an empty template label": {
			Name: "web", User: Ordinary, Labels: pairs{v1alpha1.LabelTemplate: ""},
			Want: want(initializing(pairs{v1alpha1.LabelTemplate: ""}), state(Ordinary, usual), withAll...),
		},
		"a template chosen twice": {
			Name: "web", User: Ordinary, Labels: merge(gold0, pairs{v1alpha1.LabelTemplate: gold}),
			Want: want(initializing(merge(gold0, pairs{v1alpha1.LabelTemplate: gold})),
				state(Ordinary, goldNames, selectedTemplates(gold), goldParameters), finalizerAll, finalizerTier),
		},
		"labels and annotations of templates": {
			Name: "web", User: Ordinary, Labels: pairs{"zoned": "a", "zone": "mine", "color": "red"},
			Want: want(initializing(merge(zoned, pairs{"color": "red", "unit": "u-red"})),
				state(Ordinary, zonedNames, selectedTemplates(zoneA, zoneB), parameters("size", "small"),
					pairs{"corp.example.com/by": "by " + Ordinary + ": ${x} $", "noted": "by b"}), finalizerAll),
		},
		"labels and annotations of templates, with parameters": {
			User: Ordinary, Labels: pairs{"zoned": "a", "color": ""}, Annotations: parameters("size", "l", "note", "n"),
			Want: want(initializing(merge(zoned, pairs{"color": "", "corp.example.com/size": "l.l", "noted": "xn"})),
				state(Ordinary, zonedNames, selectedTemplates(zoneA, zoneB), parameters("size", "l", "note", "n"),
					pairs{"corp.example.com/by": "by " + Ordinary + ": ${x} $", "noted": "n"}), finalizerAll),
		},
		"parameters and forged keys": {
			Name: "web", User: Ordinary, Labels: merge(gold0, forgedLabels()),
			Annotations: merge(forgedAnnotations(), parameters("size", "tiny")),
			Want: want(initializing(gold0), state(Ordinary, goldNames, selectedTemplates(gold), goldParameters, parameters("size", "tiny")),
				finalizerAll, finalizerTier),
		},
	}
}
