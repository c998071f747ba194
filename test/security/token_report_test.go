// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// The lines in SECURITY.md around the table.
const (
	firstMarker = "<!-- stolen token: begin -->"
	lastMarker  = "<!-- stolen token: end -->"
)

//go:embed testdata/purposes.yaml
var purposesYAML string

// purpose is an entry of testdata/purposes.yaml.
type purpose struct {
	Verbs, Resources      []string
	NeededFor, ConfinedBy string
}

// report collects the results of all ServiceAccounts in all variants.
type report struct {
	purposes []purpose
	// used contains "index verb resource" for the permissions that were found.
	used sets.Set[string]
	// missing contains the permissions without an entry.
	missing sets.Set[string]
	// results maps the results to the holders that they apply to.
	results map[result][]holder
	// namespaced are the resources of all namespaced types.
	namespaced sets.Set[string]
	// sentence compares the results with the namespace controller of Kubernetes.
	sentence string
}

// holder is a ServiceAccount in a variant.
type holder struct{ account, variant string }

// result is where a permission with a purpose is effective.
type result struct {
	purpose               int
	verb, resource, where string
}

func newReport() *report {
	GinkgoHelper()
	r := &report{used: sets.New[string](), missing: sets.New[string](), results: map[result][]holder{}, namespaced: sets.New[string]()}
	Expect(yaml.UnmarshalStrict([]byte(purposesYAML), &r.purposes)).To(Succeed())
	return r
}

// purposeOf returns the index of the first entry with the purpose of a permission, or -1.
func (r *report) purposeOf(one permission) int {
	GinkgoHelper()
	name := cmp.Or(strings.TrimPrefix(one.role, "nslifecycle-"), one.fullResource())
	if one.namespace == sourceNamespace {
		name = "sources"
	}
	for i, entry := range r.purposes {
		if slices.Contains(entry.Verbs, one.verb) && slices.Contains(entry.Resources, name) {
			r.used.Insert(fmt.Sprint(i, one.verb, name))
			return slices.IndexFunc(r.purposes, func(other purpose) bool {
				return other.NeededFor == entry.NeededFor && other.ConfinedBy == entry.ConfinedBy
			})
		}
	}
	r.missing.Insert(one.verb + " " + name)
	return -1
}

// unused returns the permissions in testdata/purposes.yaml that no ServiceAccount has.
func (r *report) unused() []string {
	var unused []string
	for i, entry := range r.purposes {
		for _, verb := range entry.Verbs {
			for _, name := range entry.Resources {
				if !r.used.Has(fmt.Sprint(i, verb, name)) {
					unused = append(unused, verb+" "+name)
				}
			}
		}
	}
	return unused
}

// add adds the results of a ServiceAccount.
func (r *report) add(from holder, a *attacker) {
	GinkgoHelper()
	for name, one := range a.types {
		if one.Namespaced && one.serves("delete") {
			r.namespaced.Insert(a.label(permission{resource: name}))
		}
	}
	for _, one := range a.permissions {
		where := a.where(one)
		if isVirtual(one.verb) {
			where = a.whereVirtual(one)
		}
		verb := code(one.verb)
		if slices.Contains(readVerbs, one.verb) {
			verb = "read"
		}
		found := result{r.purposeOf(one), verb, a.label(one), where}
		if !slices.Contains(r.results[found], from) {
			r.results[found] = append(r.results[found], from)
		}
	}
}

// label returns the name of the resource of a permission in the table, and of its object.
func (a *attacker) label(one permission) string {
	name := one.fullResource()
	if strings.HasSuffix(name, "."+group) {
		return "custom resources"
	}
	if served, ok := a.types[one.resource]; ok && served.version.Group != "events.k8s.io" {
		name = served.Name
		if one.subresource != "" {
			name += "/" + one.subresource
		}
	}
	if name == "leases" && one.name != "" {
		return code(name) + " of its own" // Each ServiceAccount has another one.
	}
	if one.name != "" {
		return code(name) + " " + code(strings.TrimPrefix(one.name, "nslifecycle-"))
	}
	return code(name)
}

// describe joins resources. It replaces those of all, or almost all, namespaced types.
func (r *report) describe(resources sets.Set[string]) string {
	const fewest = 10
	missing := r.namespaced.Difference(resources)
	if len(r.namespaced.Intersection(resources)) > len(missing)+fewest {
		all := "all namespaced types"
		if len(missing) > 0 {
			all += " except " + strings.Join(sets.List(missing), ", ")
		}
		return strings.Join(append([]string{all}, sets.List(resources.Difference(r.namespaced))...), ", ")
	}
	// Objects of the same type are listed after its name.
	var parts []string
	last := ""
	for _, label := range sets.List(resources) {
		name, object, hasObject := strings.Cut(label, " ")
		if hasObject && name == last {
			label = object
		}
		last = name
		parts = append(parts, label)
	}
	return strings.Join(parts, ", ")
}

// nothing describes that no request with a permission succeeded.
const nothing = "nowhere"

// where describes where the attempts with a permission succeeded.
func (a *attacker) where(one permission) string {
	placesByPart, parts := map[string][]string{}, []string{}
	for _, found := range a.successes {
		if found.permission != one || slices.Contains(placesByPart[found.part], found.place) {
			continue
		}
		if !slices.Contains(parts, found.part) {
			parts = append(parts, found.part)
		}
		placesByPart[found.part] = append(placesByPart[found.part], found.place)
	}
	partsByPlaces, order := map[string][]string{}, []string{}
	for _, part := range parts {
		places := describePlaces(placesByPart[part])
		if !slices.Contains(order, places) {
			order = append(order, places)
		}
		partsByPlaces[places] = append(partsByPlaces[places], part)
	}
	var texts []string
	for _, places := range order {
		text := places
		parts := partsByPlaces[places]
		if len(parts) < len(contentChanges[one.fullResource()])+len(metadataChanges) && parts[0] != "" {
			text += ": " + strings.Join(parts, ", ")
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		return nothing
	}
	return strings.Join(texts, "; ")
}

// isVirtual reports whether a verb is not that of a request: it extends what other permissions allow.
func isVirtual(verb string) bool { return !slices.Contains(apiVerbs, verb) }

// whereVirtual describes what a permission with a virtual verb allows together with the other permissions.
func (a *attacker) whereVirtual(one permission) string {
	GinkgoHelper()
	switch one.verb {
	case "escalate":
		// The role may contain what its writer does not have.
		one.verb = "update"
		return a.where(one)
	case v1alpha1.VerbInitialize:
		if slices.ContainsFunc(a.successes, func(found success) bool {
			return found.place == initializing && slices.Index(apiVerbs, found.verb) >= createIndex
		}) {
			return describePlaces([]string{initializing})
		}
		return nothing
	case v1alpha1.VerbRecord:
		places := sets.New[string]()
		for _, found := range a.successes {
			if strings.Contains(found.part, v1alpha1.AnnotationAppliedTemplates) {
				places.Insert(found.place)
			}
		}
		if places.Len() == 0 {
			return nothing
		}
		return describePlaces(sets.List(places))
	case "impersonate":
		return a.where(one)
	}
	Fail("add attempts with the verb " + one.verb)
	return ""
}

// describePlaces returns a list of places in words.
func describePlaces(places []string) string {
	if slices.Equal(places, []string{clusterScope}) {
		return "all"
	}
	if len(places) >= len(placesWithContent) && len(sets.New(placesWithContent...).Difference(sets.New(places...))) == 0 {
		return "all namespaces"
	}
	var states, names []string
	for _, place := range namespaceStates {
		switch {
		case !slices.Contains(places, place):
		case permanentNamespaces[place] != "":
			names = append(names, code(place))
		default:
			states = append(states, place)
		}
	}
	if len(states) > 0 {
		names = append([]string{strings.Join(states, ", ") + " namespaces"}, names...)
	}
	return strings.Join(names, ", ")
}

// readVerbs are one verb in the table, because each of them reads the content of objects.
var readVerbs = []string{"get", "list", "watch"}

const header = "\nThe part *finalization* runs as `controller-manager` in config/default, as `finalization` with" +
	" separate-finalization, and not with without-finalization. *diagnosis* is the same, but runs as `controller-manager`" +
	" with without-finalization. *read* is `get`, `list` or `watch`.\n\n" +
	"| Part | Verbs | Resources | Where | Needed for | Confined by |\n|---|---|---|---|---|---|\n"

// format returns the table and the sentence below it.
func (r *report) format() string {
	byPart := map[string][]result{}
	for found, holders := range r.results {
		if found.purpose >= 0 {
			part := r.partOf(found, holders)
			byPart[part] = append(byPart[part], found)
		}
	}
	type row struct {
		purpose int
		text    string
	}
	var rows []row
	for _, part := range slices.Sorted(maps.Keys(byPart)) {
		for _, one := range r.merge(byPart[part]) {
			entry := r.purposes[one.purpose]
			rows = append(rows, row{one.purpose, fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n",
				part, one.verb, one.resource, one.where, entry.NeededFor, entry.ConfinedBy)})
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.purpose, b.purpose) })
	text := header
	for _, one := range rows {
		text += one.text
	}
	return text + "\n" + r.sentence + "\n\n"
}

// merge merges results: first the resources with the same verb, then the verbs with the same resources.
func (r *report) merge(results []result) []result {
	resources := map[result]sets.Set[string]{}
	for _, one := range results {
		key := result{purpose: one.purpose, verb: one.verb, where: one.where}
		resources[key] = resources[key].Union(sets.New(one.resource))
	}
	verbs := map[result][]string{}
	for key, labels := range resources {
		merged := result{purpose: key.purpose, resource: r.describe(labels), where: key.where}
		verbs[merged] = append(verbs[merged], key.verb)
	}
	var merged []result
	for one, ofOne := range verbs {
		one.verb = strings.Join(slices.Sorted(slices.Values(ofOne)), ", ")
		merged = append(merged, one)
	}
	slices.SortFunc(merged, func(a, b result) int {
		return cmp.Or(cmp.Compare(a.purpose, b.purpose), cmp.Compare(a.verb, b.verb), cmp.Compare(a.resource, b.resource),
			cmp.Compare(a.where, b.where))
	})
	return merged
}

// parts are the parts of the operator, with the ServiceAccounts that they use in the variants.
var parts = []struct {
	name    string
	holders []holder
}{
	{"`admission`", []holder{{admissionAccount, "default"}, {admissionAccount, "separate-finalization"}, {admissionAccount, "without-finalization"}}},
	{"`controller-manager`", []holder{{mainAccount, "default"}, {mainAccount, "separate-finalization"}, {mainAccount, "without-finalization"}}},
	{"finalization", []holder{{mainAccount, "default"}, {finalizationAccount, "separate-finalization"}}},
	{"diagnosis", []holder{{mainAccount, "default"}, {finalizationAccount, "separate-finalization"}, {mainAccount, "without-finalization"}}},
	{"`finalization`", []holder{{finalizationAccount, "separate-finalization"}}},
	// What finalization can do only together with the other permissions of this ServiceAccount.
	{"finalization as `controller-manager`", []holder{{mainAccount, "default"}}},
}

const mainAccount, admissionAccount, finalizationAccount = "nslifecycle-controller-manager", "nslifecycle-admission", "nslifecycle-finalization"

// partOf returns the fewest parts that explain why exactly these ServiceAccounts have a permission.
func (r *report) partOf(found result, holders []holder) string {
	GinkgoHelper()
	wanted := sets.New(holders...)
	for count := 1; count <= 3; count++ {
		if names := choose(wanted, sets.New[holder](), 0, count); names != nil {
			return strings.Join(names, ", ")
		}
	}
	Fail(fmt.Sprintf("no parts of the operator use these ServiceAccounts for %+v: %v", found, holders))
	return ""
}

// choose returns the names of count parts, from the given one on, that add exactly the wanted holders.
func choose(wanted, have sets.Set[holder], from, count int) []string {
	if count == 0 {
		if have.Equal(wanted) {
			return []string{}
		}
		return nil
	}
	for i := from; i < len(parts); i++ {
		with := have.Union(sets.New(parts[i].holders...))
		if !wanted.IsSuperset(with) {
			continue
		}
		if rest := choose(wanted, with, i+1, count-1); rest != nil {
			return append([]string{parts[i].name}, rest...)
		}
	}
	return nil
}

// expectDocumented compares the table with that in SECURITY.md, or writes it.
func expectDocumented(table string) {
	GinkgoHelper()
	path := filepath.Join(controlplane.Root(), "SECURITY.md")
	content, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	before, rest, hasFirst := strings.Cut(string(content), firstMarker+"\n")
	documented, after, hasLast := strings.Cut(rest, lastMarker)
	Expect(hasFirst && hasLast).To(BeTrue(), "SECURITY.md does not contain the markers")
	if os.Getenv("NSLIFECYCLE_TEST_WRITE_TABLE") != "" {
		Expect(os.WriteFile(path, []byte(before+firstMarker+"\n"+table+lastMarker+after), 0o644)).To(Succeed())
		return
	}
	Expect(documented).To(Equal(table), "run `NSLIFECYCLE_TEST_WRITE_TABLE=true make test-security`")
}
