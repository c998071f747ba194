// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// suspect is by what the owner of a finalizer, or of a token, can be known.
type suspect struct {
	finalizer string
	// domain is the one in its name, or else that of the custom resource that has it.
	domain string
	// words are the telling parts of its name.
	words []string
	// managers are those who put it on, by the names that they use in managedFields.
	managers []string
	// lastHand says who has changed one of the objects after its deletion; lastHandAt when.
	lastHand   string
	lastHandAt time.Time
}

// strength is how well something fits a suspect.
type strength int

const (
	none strength = iota
	weak
	strong
)

// common are words that any controller's name may have.
var common = []string{
	"finalizer", "finalizers", "foreground", "controller", "controllers", "operator", "operators", "manager",
	"kubernetes", "k8s", "x-k8s", "kube", "cluster", "cleanup", "clean", "delete", "deletion", "protection", "protect",
	"hold", "resource", "resources", "object", "api", "apis", "app", "apps", "com", "org", "net", "dev", "cloud",
	"google", "googleapis", "amazon", "amazonaws", "aws", "azure", "microsoft", "docker", "quay", "registry", "example",
	"www", "the", "github", "github-io", "namespace", namespaceResource, "owner", "external", "system", "default",
}

// shared are domains under which many unrelated parties have their names.
var shared = []string{"k8s.io", "x-k8s.io", "kubernetes.io", "github.io", "github.com", "gitlab.com", "io", "com"}

// suspectOf collects what is known of the owner of a finalizer.
func suspectOf(finalizer string, items []item) suspect {
	result := suspect{finalizer: finalizer, domain: domainOf(finalizer)}
	if result.domain == "" {
		result.domain = domainOfType(items)
	}
	result.words = wordsOf(finalizer, result.domain)
	if known, isKnown := lookUp(finalizer); isKnown && len(known.words) > 0 {
		result.words = known.words
	}
	for _, i := range items {
		result.addHands(i)
	}
	slices.Sort(result.managers)
	result.managers = slices.Compact(result.managers)
	return result
}

// domainOfType returns the group of a custom resource among the items: whose finalizer names
// no domain has most likely the owner of its type.
func domainOfType(items []item) string {
	for _, i := range items {
		if strings.Contains(i.Group, ".") && !strings.HasSuffix(i.Group, ".k8s.io") {
			return i.Group
		}
	}
	return ""
}

// addHands collects from managedFields who put the finalizer on, and who was last at it.
func (s *suspect) addHands(i item) {
	for _, entry := range i.ManagedFields {
		if entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"v:\"`+s.finalizer+`\""`)) {
			s.managers = append(s.managers, entry.Manager)
		}
		if entry.Time != nil && i.DeletionTimestamp != nil && entry.Time.After(i.DeletionTimestamp.Time) &&
			entry.Time.After(s.lastHandAt) && isController(entry.Manager) {
			s.lastHand, s.lastHandAt = entry.Manager, entry.Time.Time
		}
	}
}

// domainOf returns the domain in the name of a finalizer: foo.example.com of
// foo.example.com/bar, example.com of finalizer.example.com; empty if there is none.
func domainOf(finalizer string) string {
	domain, _, hasPath := strings.Cut(finalizer, "/")
	for _, prefix := range []string{"finalizer.", "finalizers.", "foreground-finalizer.", "resources-finalizer."} {
		domain = strings.TrimPrefix(domain, prefix)
	}
	if !hasPath && !strings.Contains(finalizer, ".") || !strings.Contains(domain, ".") {
		return ""
	}
	return strings.ToLower(domain)
}

func wordsOf(finalizer, domain string) []string {
	_, rest, _ := strings.Cut(finalizer, "/")
	labels := strings.Split(domain, ".")
	words := append(labels[:max(0, len(labels)-1)], strings.FieldsFunc(rest, func(r rune) bool {
		return r == '/' || r == '.'
	})...)
	if domain == "" && rest == "" {
		words = []string{finalizer}
	}
	words = slices.DeleteFunc(words, func(word string) bool {
		return len(word) < 3 || slices.Contains(common, strings.ToLower(word))
	})
	for i := range words {
		words[i] = strings.ToLower(words[i])
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// isController tells whether the name of a field manager may be that of a controller which
// takes finalizers off: not a person's tool, and not one of Kubernetes' own which touch
// every object.
func isController(manager string) bool {
	for _, prefix := range []string{"kubectl", "helm", "kube-apiserver", "kube-controller-manager", "nslifecycle",
		"before-first-apply", "k9s", "Mozilla", "node-fetch", "unknown"} {
		if strings.HasPrefix(manager, prefix) {
			return false
		}
	}
	return true
}

// isTelling tells whether the name of a field manager can be the name of one workload only.
func isTelling(manager string) bool {
	return len(manager) > 3 && isController(manager) &&
		!slices.Contains(append([]string{"main", "Go-http-client", "controller-manager", "python-requests"}, common...),
			manager)
}

// fits tells how well texts, such as the names and labels of a workload, fit the suspect.
func (s *suspect) fits(texts ...string) strength {
	best := none
	for _, text := range texts {
		text = strings.ToLower(text)
		if text == "" {
			continue
		}
		if s.domain != "" && !slices.Contains(shared, s.domain) && containsWord(text, s.domain) ||
			len(s.finalizer) > 3 && containsWord(text, strings.ToLower(s.finalizer)) {
			return strong
		}
		for _, manager := range s.managers {
			if isTelling(manager) && (text == strings.ToLower(manager) || path.Base(text) == strings.ToLower(manager)) {
				return strong
			}
		}
		if slices.ContainsFunc(s.words, func(word string) bool { return containsWord(text, word) }) {
			best = weak
		}
	}
	return best
}

// fitsWorkload counts an image as a weak sign only.
func (s *suspect) fitsWorkload(workload *Workload) strength {
	if fit := s.fits(workload.Texts...); fit != none {
		return fit
	}
	return min(s.fits(workload.Images...), weak)
}

// containsWord tells whether a text contains a word that is not a part of a longer one.
func containsWord(text, word string) bool {
	isPart := func(b byte) bool { return b >= 'a' && b <= 'z' || b >= '0' && b <= '9' }
	for from := 0; ; {
		at := strings.Index(text[from:], word)
		if at < 0 {
			return false
		}
		begin, end := from+at, from+at+len(word)
		if (begin == 0 || !isPart(text[begin-1])) && (end == len(text) || !isPart(text[end])) {
			return true
		}
		from = begin + 1
	}
}

// isRelated tells whether an API group belongs to a domain: the same, one below it, or one
// above it that is not shared.
func isRelated(group, domain string) bool {
	if group == "" || domain == "" {
		return false
	}
	return group == domain || strings.HasSuffix(group, "."+domain) && !slices.Contains(shared, domain) ||
		strings.HasSuffix(domain, "."+group) && !slices.Contains(shared, group)
}

// trace is one sign of an owner.
type trace struct {
	text     string
	strength strength
	// isHere says that it is in the namespace itself.
	isHere bool
}

// traces are the signs of an owner, of its life and of its death, and of who it is.
type traces struct {
	alive, dead []trace
	// accounts are those that living workloads run as; certain is how well the best of the
	// workloads fit.
	accounts []types.NamespacedName
	certain  strength
	// groups are what else belongs to its domain.
	groups []string
}

// trace looks for the owner everywhere.
func (f *Facts) trace(s *suspect) traces {
	var found traces
	f.traceWorkloads(s, &found)
	f.traceLeases(s, &found)
	f.traceAPI(s, &found)
	for _, account := range f.accountsOf(s) {
		if exists, isKnown := f.Accounts[account.name]; isKnown && !exists {
			found.dead = append(found.dead, trace{
				fmt.Sprintf("ClusterRoleBinding %q names ServiceAccount %s, which does not exist", account.binding, account.name),
				account.strength, account.name.Namespace == f.Namespace.Name,
			})
		}
	}
	if s.lastHand != "" {
		found.alive = append(found.alive, trace{text: fmt.Sprintf(
			"%q changed an object at %s, after its deletion", s.lastHand, stamp(s.lastHandAt)), strength: weak})
	}
	return found
}

// isSign reports whether a matching object of a namespace is evidence of an owner. If other
// namespaces are not read, a similar name is not enough: a better match may be there.
func (f *Facts) isSign(namespace string, fit strength) bool {
	return f.mayName(namespace) && (fit == strong || !f.IsPublic)
}

func (f *Facts) traceWorkloads(s *suspect, found *traces) {
	for i := range f.Workloads {
		workload := &f.Workloads[i]
		fit := s.fitsWorkload(workload)
		if fit == none || !f.isSign(workload.Namespace, fit) {
			continue
		}
		text := fmt.Sprintf("%s %s/%s has %d of %d pods ready", workload.Source, workload.Namespace, workload.Name,
			workload.Ready, workload.Wanted)
		if workload.Source == SourcePods {
			text = fmt.Sprintf("pod %s/%s is running", workload.Namespace, workload.Name)
		}
		isHere := workload.Namespace == f.Namespace.Name
		if !workload.IsAlive() {
			found.dead = append(found.dead, trace{text, fit, isHere})
			continue
		}
		found.alive = append(found.alive, trace{text, fit, isHere})
		if workload.Account.Name == "" {
			continue
		}
		switch {
		case fit > found.certain:
			found.certain, found.accounts = fit, []types.NamespacedName{workload.Account}
		case fit == found.certain && !slices.Contains(found.accounts, workload.Account):
			found.accounts = append(found.accounts, workload.Account)
		}
	}
}

func (f *Facts) traceLeases(s *suspect, found *traces) {
	for i := range f.Leases {
		lease := &f.Leases[i]
		fit := s.fits(lease.Name, ptr.Deref(lease.Spec.HolderIdentity, ""))
		if fit == none || lease.Spec.RenewTime == nil || !f.isSign(lease.Namespace, fit) {
			continue
		}
		text, isFresh := f.readLease(lease)
		one := trace{text, fit, lease.Namespace == f.Namespace.Name}
		if isFresh {
			found.alive = append(found.alive, one)
		} else {
			// It may have been given up for another one, or leader election switched off.
			one.strength = weak
			found.dead = append(found.dead, one)
		}
	}
}

// readLease says when a Lease was renewed, and whether who renews it seems to be alive: a
// leader renews it several times in its duration, and a new one takes it over soon after.
func (f *Facts) readLease(lease *coordinationv1.Lease) (text string, isFresh bool) {
	const times = 4
	renewed := lease.Spec.RenewTime.Time
	longest := max(times*time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 15))*time.Second, time.Minute)
	text = fmt.Sprintf("Lease %s/%s was renewed %s ago, at %s, by %q", lease.Namespace, lease.Name, f.ago(renewed),
		stamp(renewed), ptr.Deref(lease.Spec.HolderIdentity, ""))
	return text, f.Now.Sub(renewed) < longest
}

// traceAPI looks at what serves the API groups of the same domain.
func (f *Facts) traceAPI(s *suspect, found *traces) {
	for i := range f.APIServices {
		service := &f.APIServices[i]
		if !isRelated(service.GroupVersion.Group, s.domain) {
			continue
		}
		isHere := service.Service.Namespace == f.Namespace.Name
		if service.IsAvailable {
			found.alive = append(found.alive, trace{"APIService " + service.Name + " is available", weak, isHere})
		} else {
			found.dead = append(found.dead, trace{fmt.Sprintf("APIService %s is not available: %s", service.Name,
				service.Reason) + f.detail(service.Message), weak, isHere})
		}
	}
	for _, name := range f.DefinitionNames {
		if _, group, _ := strings.Cut(name, "."); isRelated(group, s.domain) {
			found.groups = append(found.groups, name)
		}
	}
}

// boundAccount is a ServiceAccount that a ClusterRoleBinding names.
type boundAccount struct {
	name     types.NamespacedName
	binding  string
	strength strength
}

// accountsOf returns the ServiceAccounts that have cluster-wide rights and fit a suspect.
func (f *Facts) accountsOf(s *suspect) []boundAccount {
	var accounts []boundAccount
	for i := range f.ClusterRoleBindings {
		binding := &f.ClusterRoleBindings[i]
		if strings.HasPrefix(binding.Name, "system:") {
			continue // Kubernetes makes these everywhere, for accounts that few clusters have.
		}
		for _, subject := range binding.Subjects {
			if subject.Kind != rbacv1.ServiceAccountKind {
				continue
			}
			fit := s.fits(binding.Name, binding.RoleRef.Name, subject.Name, subject.Namespace)
			if fit != none && f.isSign(subject.Namespace, fit) {
				name := types.NamespacedName{Namespace: subject.Namespace, Name: subject.Name}
				accounts = append(accounts, boundAccount{name, binding.Name, fit})
			}
		}
	}
	return accounts
}

// strangers returns the finalizers and tokens which should have been taken off by now by
// somebody who is not part of Kubernetes itself, with the objects that have them.
func (f *Facts) strangers() map[string][]item {
	result := map[string][]item{}
	for finalizer, items := range f.overdueByFinalizer() {
		if known, isKnown := lookUp(finalizer); !isKnown || known.manager == "" || len(known.words) > 0 {
			result[finalizer] = items
		}
	}
	for _, name := range append(f.tokens(), f.Namespace.Finalizers...) {
		if _, isThere := result[name]; !isThere {
			result[name] = nil
		}
	}
	return result
}

// mostQuestions bounds what is asked about rights, and about accounts.
const mostQuestions = 20

// questions returns what is to be asked about the rights of those who seem to be owners.
func (f *Facts) questions() []question {
	var questions []question
	for finalizer, items := range sorted(f.strangers()) {
		if len(items) == 0 {
			continue
		}
		s := suspectOf(finalizer, items)
		for _, account := range f.trace(&s).accounts {
			for _, i := range items {
				one := question{account, i.Type}
				isAsked := slices.ContainsFunc(questions, func(other question) bool {
					return other.account == one.account && other.of.GroupVersionResource == one.of.GroupVersionResource
				})
				if !isAsked && len(questions) < mostQuestions {
					questions = append(questions, one)
				}
			}
		}
	}
	return questions
}

// accountsInQuestion returns the ServiceAccounts of which it matters whether they exist.
func (f *Facts) accountsInQuestion() []types.NamespacedName {
	var names []types.NamespacedName
	for finalizer, items := range sorted(f.strangers()) {
		s := suspectOf(finalizer, items)
		for _, account := range f.accountsOf(&s) {
			if !slices.Contains(names, account.name) && len(names) < mostQuestions {
				names = append(names, account.name)
			}
		}
	}
	return names
}
