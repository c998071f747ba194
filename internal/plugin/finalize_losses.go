// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// namedAtMost is how many objects of a type are named before the rest is counted.
const namedAtMost = 3

// meanings say what becomes of orphans of a type, beyond the objects themselves.
var meanings = map[string]string{
	"persistentvolumeclaims": "their volumes stay, with what is on them and what they cost",
	"pods":                   "their containers go on running where a kubelet runs them",
	"services":               "load balancers that were made for them outside of the cluster stay, and cost",
	"ingresses.networking.k8s.io": "load balancers and DNS names that were made for them outside of the " +
		"cluster stay",
	"secrets": "what is secret in them stays readable for whoever may read Secrets in all namespaces",
	"rolebindings.rbac.authorization.k8s.io": "they come into force again in the next namespace of the same " +
		"name",
}

// lossesOf says what a plan loses or leaves behind, in sentences.
func lossesOf(planned *plan) []string {
	var losses []string
	add := func(text string) {
		if text = sentence(text); text != "" && !slices.Contains(losses, text) {
			losses = append(losses, text)
		}
	}
	concerned := findingsAbout(planned.Diagnosis, planned.Removal)
	if len(planned.Orphans) > 0 {
		// Whatever holds any of them is given up together with them.
		concerned = planned.Diagnosis.Findings
		add("The orphans stay in storage, where no deletion of a namespace reaches them; " +
			"a new namespace with the same name has them in it")
		for _, group := range groupRemnants(planned.Orphans) {
			if meaning := meanings[group[0].Resource]; meaning != "" {
				add(fmt.Sprintf("%s: %s", counted(group), meaning))
			}
		}
	}
	for _, finding := range concerned {
		add(finding.Loss)
	}
	if len(planned.Targets) > 0 && len(concerned) == 0 {
		add("Whatever the owner of the finalizer would have cleaned up stays, inside of the cluster or outside")
	}
	return losses
}

// candidate is one removal that a user could choose.
type candidate struct {
	removal
	// Command asks for it, as a dry run.
	Command string `json:"command"`
	// Effect is a sentence.
	Effect string `json:"effect"`
}

// listCandidates returns everything that could be removed, what does the least harm
// first: finalizers of objects, tokens of agents and finalizers of the Namespace, and at
// last the token by which everything in the namespace is deleted.
func listCandidates(facts *predicament) []candidate {
	byFinalizer := map[string][]remnant{}
	var finalizers []string
	for _, object := range facts.remnants {
		for _, finalizer := range unique(object.Finalizers) {
			if !object.IsTerminating {
				continue
			}
			if byFinalizer[finalizer] == nil {
				finalizers = append(finalizers, finalizer)
			}
			byFinalizer[finalizer] = append(byFinalizer[finalizer], object)
		}
	}
	slices.Sort(finalizers)
	var all []candidate
	add := func(wanted removal, effect string, flags ...string) {
		all = append(all, candidate{removal: wanted, Command: wanted.command(facts.namespace.Name, flags...), Effect: effect})
	}
	for _, finalizer := range finalizers {
		add(removal{Finalizer: finalizer}, "takes it off "+nameRemnants(byFinalizer[finalizer]))
	}
	for _, finalizer := range unique(facts.namespace.Finalizers) {
		add(removal{NamespaceFinalizer: finalizer}, "takes it off the Namespace")
	}
	for _, token := range unique(facts.namespace.Spec.Finalizers) {
		if token != corev1.FinalizerKubernetes {
			add(removal{Token: string(token)}, "releases the token of an agent")
		}
	}
	if slices.Contains(facts.namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		wanted := removal{Token: string(corev1.FinalizerKubernetes)}
		if len(facts.remnants) == 0 {
			add(wanted, "releases the namespace, in which nothing was found")
		} else {
			add(wanted, "gives up everything that is left, "+nameRemnants(facts.remnants)+
				": nobody deletes it any more", flagOrphan)
		}
	}
	return all
}

// groupRemnants returns objects by their types, in the order of the types.
func groupRemnants(objects []remnant) [][]remnant {
	sorted := slices.SortedStableFunc(slices.Values(objects), compareRemnants)
	var groups [][]remnant
	for start := 0; start < len(sorted); {
		end := start
		for end < len(sorted) && sorted[end].Resource == sorted[start].Resource {
			end++
		}
		groups = append(groups, sorted[start:end])
		start = end
	}
	return groups
}

func compareRemnants(a, b remnant) int {
	return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name))
}

// counted returns how many objects there are of one type.
func counted(group []remnant) string {
	return fmt.Sprintf("%d %s", len(group), group[0].Resource)
}

// nameGroup names a few objects of one type and counts the rest.
func nameGroup(group []remnant) string {
	names := make([]diagnosis.Object, 0, namedAtMost)
	for _, object := range group[:min(len(group), namedAtMost)] {
		names = append(names, diagnosis.Object{Resource: object.Resource, Name: object.Name})
	}
	return listObjects(names, len(group), "")
}

// nameRemnants names a few objects of each type and counts the rest.
func nameRemnants(objects []remnant) string {
	var texts []string
	for _, group := range groupRemnants(objects) {
		texts = append(texts, nameGroup(group))
	}
	return strings.Join(texts, "; ")
}
