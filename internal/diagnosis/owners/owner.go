// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"bytes"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// Owner describes how to identify the controller responsible for a finalizer.
type Owner struct {
	Finalizer string
	// Domain is the domain in the name of the finalizer. If the name contains no domain, it is the API
	// group of a custom resource with the finalizer.
	Domain string
	// Managers are the field managers that added the finalizer.
	Managers []string

	// words are the parts of the name of the finalizer that few other names contain.
	words []string
	// lastManager is the last field manager that changed one of the objects after its deletion was
	// requested.
	lastManager  string
	lastChangeAt time.Time
}

// Match is the quality of a match with an Owner.
type Match int

// Values of Match, from worst to best.
const (
	NoMatch Match = iota
	WeakMatch
	StrongMatch
)

// commonWords can be part of the name of any controller.
var commonWords = []string{
	"finalizer", "finalizers", "foreground", "controller", "controllers", "operator", "operators", "manager",
	"kubernetes", "k8s", "x-k8s", "kube", "cluster", "cleanup", "clean", "delete", "deletion", "protection", "protect",
	"hold", "resource", "resources", "object", "api", "apis", "app", "apps", "com", "org", "net", "dev", "cloud",
	"google", "googleapis", "amazon", "amazonaws", "aws", "azure", "microsoft", "docker", "quay", "registry", "example",
	"www", "the", "github", "github-io", "namespace", namespaceResource, "owner", "external", "system", "default",
}

// sharedDomains are domains that many unrelated projects use.
var sharedDomains = []string{"k8s.io", "x-k8s.io", "kubernetes.io", "github.io", "github.com", "gitlab.com",
	"io", "com"}

// Of returns the Owner of a finalizer that the given objects have.
func Of(finalizer string, objects []diagnosis.RemainingObject) Owner {
	result := Owner{Finalizer: finalizer, Domain: domainOf(finalizer)}
	if result.Domain == "" {
		result.Domain = domainOfType(objects)
	}
	result.words = wordsOf(finalizer, result.Domain)
	if known, ok := Known(finalizer); ok && len(known.words) > 0 {
		result.words = known.words
	}
	for _, object := range objects {
		result.addManagers(object)
	}
	slices.Sort(result.Managers)
	result.Managers = slices.Compact(result.Managers)
	return result
}

// CanRunOutside reports whether the owner can run outside the cluster, at a cloud provider.
func (o *Owner) CanRunOutside() bool {
	known, _ := Known(o.Finalizer)
	return known.External || isCloudDomain(o.Domain)
}

// domainOfType returns the API group of a custom resource among the objects. A finalizer without a
// domain most likely belongs to the controller of the custom resource.
func domainOfType(objects []diagnosis.RemainingObject) string {
	for _, object := range objects {
		if strings.Contains(object.Group, ".") && !strings.HasSuffix(object.Group, ".k8s.io") {
			return object.Group
		}
	}
	return ""
}

// addManagers reads from managedFields which field managers added the finalizer, and which one last
// changed the object.
func (o *Owner) addManagers(object diagnosis.RemainingObject) {
	for _, entry := range object.ManagedFields {
		if entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"v:\"`+o.Finalizer+`\""`)) {
			o.Managers = append(o.Managers, entry.Manager)
		}
		if entry.Time != nil && object.DeletionTimestamp != nil && entry.Time.After(object.DeletionTimestamp.Time) &&
			entry.Time.After(o.lastChangeAt) && isController(entry.Manager) {
			o.lastManager, o.lastChangeAt = entry.Manager, entry.Time.Time
		}
	}
}

// domainOf returns the domain in the name of a finalizer, or "" if there is none. Examples:
// foo.example.com for foo.example.com/bar, and example.com for finalizer.example.com.
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
		return len(word) < 3 || slices.Contains(commonWords, strings.ToLower(word))
	})
	for i := range words {
		words[i] = strings.ToLower(words[i])
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// isController reports whether a field manager can be a controller that removes finalizers. It excludes
// the tools of users and the components of Kubernetes that change objects of all types.
func isController(manager string) bool {
	for _, prefix := range []string{"kubectl", "helm", "kube-apiserver", "kube-controller-manager", "nslifecycle",
		"before-first-apply", "k9s", "Mozilla", "node-fetch", "unknown"} {
		if strings.HasPrefix(manager, prefix) {
			return false
		}
	}
	return true
}

// isSpecific reports whether the name of a field manager identifies one workload.
func isSpecific(manager string) bool {
	return len(manager) > 3 && isController(manager) &&
		!slices.Contains(append([]string{"main", "Go-http-client", "controller-manager", "python-requests"},
			commonWords...), manager)
}

// match returns how well texts, such as the names and labels of a workload, match the owner.
func (o *Owner) match(texts ...string) Match {
	best := NoMatch
	for _, text := range texts {
		text = strings.ToLower(text)
		if text == "" {
			continue
		}
		if o.Domain != "" && !slices.Contains(sharedDomains, o.Domain) && containsWord(text, o.Domain) ||
			len(o.Finalizer) > 3 && containsWord(text, strings.ToLower(o.Finalizer)) {
			return StrongMatch
		}
		for _, manager := range o.Managers {
			if isSpecific(manager) && (text == strings.ToLower(manager) || path.Base(text) == strings.ToLower(manager)) {
				return StrongMatch
			}
		}
		if slices.ContainsFunc(o.words, func(word string) bool { return containsWord(text, word) }) {
			best = WeakMatch
		}
	}
	return best
}

// MatchWorkload returns how well a workload matches the owner. An image is never a strong match.
func (o *Owner) MatchWorkload(workload *diagnosis.Workload) Match {
	if match := o.match(workload.Names...); match != NoMatch {
		return match
	}
	return min(o.match(workload.Images...), WeakMatch)
}

// containsWord reports whether text contains word, but not as part of a longer word.
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

// isRelated reports whether an API group belongs to a domain: the group is the domain itself, a
// subdomain, or a parent domain that unrelated projects do not share.
func isRelated(group, domain string) bool {
	if group == "" || domain == "" {
		return false
	}
	return group == domain || strings.HasSuffix(group, "."+domain) && !slices.Contains(sharedDomains, domain) ||
		strings.HasSuffix(domain, "."+group) && !slices.Contains(sharedDomains, group)
}
