// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/config/initializers"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// ConfinedName is the name of the policy and of its binding.
const ConfinedName = "nslifecycle-" + internalv1alpha1.PolicyConfinedInitializers

// ConfinedSubjects maps the user names of the confined subjects to the sorted names of their initializers.
type ConfinedSubjects map[string][]string

// ComputeConfined returns the confined subjects of initializers: ServiceAccounts that are confined by at least one
// initializer. It does not rely on the validation of configurations: the set can contain others, from an earlier
// version or because of a stolen token. ServiceAccounts in the system namespace are not confined, because one of them
// applies and deletes the policy, and neither are those in kube-system, which are components of Kubernetes.
func ComputeConfined(effective []internalv1alpha1.EffectiveInitializer, systemNamespace string) ConfinedSubjects {
	all, confined := ConfinedSubjects{}, ConfinedSubjects{}
	for _, initializer := range effective {
		for _, subject := range initializer.Subjects {
			user := subject.Name
			if subject.Kind == v1alpha1.SubjectServiceAccount {
				user = serviceaccount.MakeUsername(subject.Namespace, subject.Name)
				if initializer.Confinement == v1alpha1.ConfinementInitializingNamespaces &&
					subject.Namespace != systemNamespace && subject.Namespace != metav1.NamespaceSystem {
					confined[user] = nil
				}
			}
			if subject.Kind != v1alpha1.SubjectGroup {
				all[user] = append(all[user], initializer.Name)
			}
		}
	}
	for user := range confined {
		names := all[user]
		slices.Sort(names)
		confined[user] = slices.Compact(names)
	}
	return confined
}

// Size returns the length of the longest expression with the subjects.
func (s ConfinedSubjects) Size() int { return len(s.initializers()) }

// isConfined returns a CEL expression that selects the requests of the subjects, except those that the expression in
// the manifest exempts. The API server evaluates a list of constants as a set.
func (s ConfinedSubjects) isConfined(exemption string) string {
	return "request.userInfo.username in " + quote(slices.Sorted(maps.Keys(s))) + " && " + exemption
}

// initializers returns a CEL expression for the initializers of the user.
func (s ConfinedSubjects) initializers() string {
	var entries []string
	for _, user := range slices.Sorted(maps.Keys(s)) {
		entries = append(entries, strconv.QuoteToASCII(user)+": "+quote(s[user]))
	}
	return "{" + strings.Join(entries, ", ") + "}[request.userInfo.username]"
}

func quote(values []string) string {
	quoted := make([]string, 0, len(values))
	for _, value := range values {
		quoted = append(quoted, strconv.QuoteToASCII(value))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// Render returns the policy for the subjects and its binding.
func (s ConfinedSubjects) Render() []*unstructured.Unstructured {
	objects := Decode(initializers.Confined)
	spec := objects[0].Object["spec"].(map[string]any)
	condition := spec["matchConditions"].([]any)[0].(map[string]any)
	condition["expression"] = s.isConfined(strings.TrimPrefix(condition["expression"].(string), "false && "))
	spec["variables"].([]any)[0].(map[string]any)["expression"] = s.initializers()
	return objects
}
