// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	known "github.com/nslifecycle/nslifecycle/internal/diagnosis/knowncontrollers"
)

// outcome is what a finding says about the owner of a finalizer.
type outcome string

const (
	// outcomeRunning: the owner runs and has not removed the finalizer.
	outcomeRunning outcome = "running"
	// outcomePublished: the owner has published why it cannot delete the object.
	outcomePublished outcome = "published"
	// outcomeForbidden: the owner lacks a permission.
	outcomeForbidden outcome = "forbidden"
	// outcomeNotRunning: the owner does not run, but its workload exists.
	outcomeNotRunning outcome = "not running"
	// outcomeNotFound: the owner does not exist.
	outcomeNotFound outcome = "not found"
	// outcomeUnknown: the owner, or whether it runs, is unknown.
	outcomeUnknown outcome = "unknown"
	// outcomeNone: there is no finding about the finalizer.
	outcomeNone outcome = "no finding"
	// outcomeWrongOwner: another workload, ServiceAccount or Lease is named as the owner.
	outcomeWrongOwner outcome = "wrong owner"
)

// outcomes are all outcomes, in the order of the confusion matrix.
var outcomes = []outcome{
	outcomeRunning, outcomePublished, outcomeForbidden, outcomeNotRunning, outcomeNotFound, outcomeUnknown,
	outcomeWrongOwner,
}

// classification is the result of a diagnosis of a case.
type classification struct {
	outcome outcome
	// accused are the workloads, ServiceAccounts and Leases that the finding names as the owner.
	accused []string
	// isRemovable reports whether finalize removes the finalizer without a flag.
	isRemovable bool
	message     string
}

// classify maps the finding about the finalizer of a case to a classification. It is the only function
// that depends on the fields and texts of findings.
func (c *corpus) classify(one *corpusCase, result *diagnosis.Diagnosis) classification {
	at := slices.IndexFunc(result.Findings, func(f diagnosis.Finding) bool { return f.Finalizer == one.finalizer })
	if at < 0 {
		return classification{outcome: outcomeNone}
	}
	finding := result.Findings[at]
	found := classification{
		message: finding.Message, accused: c.namesIn(finding.Message), isRemovable: finding.OwnerState == diagnosis.OwnerAbsent,
	}
	if finding.OwnerState == diagnosis.OwnerRunning || finding.OwnerState == diagnosis.OwnerNotRunning {
		found.accused = c.namesIn(finding.Message + " " + evidenceText(finding))
	}
	switch {
	case finding.Rank == diagnosis.RankPublished && one.failure != nil &&
		strings.Contains(finding.Message, diagnosis.OneLine(messageOf(one))):
		found.outcome = outcomePublished
	case finding.Cause == diagnosis.CauseFinalizerOwnerForbidden:
		found.outcome = outcomeForbidden
	case finding.OwnerState == diagnosis.OwnerNotFound:
		found.outcome = outcomeNotFound
	case finding.OwnerState == diagnosis.OwnerNotRunning:
		found.outcome = outcomeNotRunning
	case finding.OwnerState == diagnosis.OwnerRunning:
		found.outcome = outcomeRunning
	default:
		found.outcome = outcomeUnknown
	}
	if c.isWronglyAccused(one, found.accused) {
		found.outcome = outcomeWrongOwner
	}
	return found
}

// namesIn returns the workloads, ServiceAccounts and Leases that a text names.
func (c *corpus) namesIn(text string) []string {
	isEnd := func(r rune) bool { return strings.ContainsRune(" \t\n\"',;:()", r) }
	var names []string
	for word := range strings.FieldsFuncSeq(text, isEnd) {
		word = strings.TrimSuffix(word, ".")
		_, ok := c.owners[word]
		isDecoy := strings.HasPrefix(word, "shop/") || strings.HasPrefix(word, "platform/")
		if (ok || isDecoy) && !slices.Contains(names, word) {
			names = append(names, word)
		}
	}
	return names
}

// isWronglyAccused reports whether a finding names an object that does not belong to the controller.
func (c *corpus) isWronglyAccused(one *corpusCase, accused []string) bool {
	return slices.ContainsFunc(accused, func(name string) bool {
		return !slices.Contains(c.owners[name], one.controller.Name)
	})
}

// expectedOutcome returns the right outcome of a case in a situation.
func (c *corpus) expectedOutcome(one *corpusCase, in situation) outcome {
	_, workloads := workloadsOf(one.controller)
	switch {
	case in == situationFailing:
		return outcomePublished
	case len(workloads) == 0 || workloads[0].Kind == "Pod":
		return outcomeUnknown // No workload in the cluster shows whether the controller runs.
	case in == situationRunning:
		return outcomeRunning
	case one.controller.Outside:
		// Without a workload in the cluster, the controller can run at the cloud provider.
		if in == situationUninstalled {
			return outcomeUnknown
		}
		return outcomeNotRunning
	case in == situationStopped:
		return outcomeNotRunning
	}
	return outcomeNotFound
}

// corpusReport collects classifications.
type corpusReport struct {
	mutex   sync.Mutex
	entries []corpusEntry
}

type corpusEntry struct {
	controller *known.Controller
	finalizer  string
	in         situation
	expected   outcome
	found      classification
}

func (r *corpusReport) add(one *corpusCase, in situation, expected outcome, found classification) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.entries = append(r.entries, corpusEntry{one.controller, one.finalizer, in, expected, found})
}

// isHarmful reports whether the finding names another owner, states that a running owner is not running,
// or makes finalize remove the finalizer without a flag. Nothing in the corpus proves that an owner is
// absent.
func (e *corpusEntry) isHarmful() bool {
	isRunning := e.in == situationRunning || e.in == situationFailing
	return e.found.isRemovable || e.found.outcome == outcomeWrongOwner ||
		isRunning && e.found.outcome == outcomeNotRunning
}

// harmful describes the harmful classifications.
func (r *corpusReport) harmful() []string { return r.describe((*corpusEntry).isHarmful) }

// wrong describes the classifications that are not the expected ones.
func (r *corpusReport) wrong() []string {
	return r.describe(func(entry *corpusEntry) bool {
		return entry.found.outcome != entry.expected || entry.isHarmful()
	})
}

func (r *corpusReport) describe(matches func(*corpusEntry) bool) []string {
	var lines []string
	for i := range r.entries {
		if matches(&r.entries[i]) {
			lines = append(lines, r.entries[i].String())
		}
	}
	slices.Sort(lines)
	return lines
}

func (e *corpusEntry) String() string {
	text := fmt.Sprintf("%-11s expected %-11s found %-11s %s (%s): %s", e.in, e.expected, e.found.outcome,
		e.controller.Name, e.finalizer, e.found.message)
	if e.found.isRemovable {
		text += " [finalize removes it]"
	}
	return text
}

// String returns the confusion matrix, its precision and recall, and the wrong classifications.
func (r *corpusReport) String() string {
	counts := map[[2]outcome]int{}
	var right, claims, accusations, unsafe int
	for i := range r.entries {
		entry := &r.entries[i]
		counts[[2]outcome{entry.expected, entry.found.outcome}]++
		if entry.found.outcome == entry.expected {
			right++
		}
		// A finding that says that it does not know claims nothing.
		if entry.found.outcome != outcomeUnknown || entry.expected == outcomeUnknown {
			claims++
		}
		if entry.found.outcome == outcomeWrongOwner {
			accusations++
		}
		if entry.found.isRemovable {
			unsafe++
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%-20s", "expected \\ found")
	for _, found := range outcomes {
		fmt.Fprintf(&text, " %11s", found)
	}
	fmt.Fprintf(&text, " %9s %9s\n", "recall", "precision")
	for _, expected := range outcomes {
		row, column := 0, 0
		for _, other := range outcomes {
			row += counts[[2]outcome{expected, other}]
			column += counts[[2]outcome{other, expected}]
		}
		if row == 0 && column == 0 {
			continue
		}
		fmt.Fprintf(&text, "%-20s", expected)
		for _, found := range outcomes {
			fmt.Fprintf(&text, " %11d", counts[[2]outcome{expected, found}])
		}
		hits := counts[[2]outcome{expected, expected}]
		fmt.Fprintf(&text, " %9s %9s\n", ratio(hits, row), ratio(hits, column))
	}
	fmt.Fprintf(&text, "%d findings, recall %s, precision %s, %d wrong accusations, "+
		"%d finalizers removed although their owner can exist\n",
		len(r.entries), ratio(right, len(r.entries)), ratio(right, claims), accusations, unsafe)
	return text.String() + strings.Join(r.wrong(), "\n")
}

func ratio(part, whole int) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(part)/float64(whole))
}

// renamedControllers returns all controllers with other domains in their finalizers and API groups,
// so that the data of the diagnosis contains none of them. The names of workloads and field managers
// are the same.
func renamedControllers() []known.Controller {
	domains := map[string]string{}
	rename := func(name string) string {
		prefix, rest, hasPath := strings.Cut(name, "/")
		labels := strings.Split(prefix, ".")
		if len(labels) < 2 {
			return name
		}
		domain := strings.Join(labels[len(labels)-2:], ".")
		if _, ok := domains[domain]; !ok {
			domains[domain] = fmt.Sprintf("d%d.example.net", len(domains)+1)
		}
		renamed := strings.Join(append(slices.Clone(labels[:len(labels)-2]), domains[domain]), ".")
		if hasPath {
			renamed += "/" + rest
		}
		return renamed
	}
	controllers := slices.Clone(known.All())
	for i := range controllers {
		controller := &controllers[i]
		controller.Finalizers = slices.Clone(controller.Finalizers)
		for j := range controller.Finalizers {
			finalizer := &controller.Finalizers[j]
			finalizer.Name, finalizer.Prefix = rename(finalizer.Name), rename(finalizer.Prefix)
			finalizer.Resources = slices.Clone(finalizer.Resources)
			for k, resource := range finalizer.Resources {
				if plural, group, _ := strings.Cut(resource.Name, "."); !isBuiltIn(resource) {
					finalizer.Resources[k].Name = plural + "." + rename(group)
				}
			}
		}
		controller.Permissions.Groups = slices.Clone(controller.Permissions.Groups)
		for j, group := range controller.Permissions.Groups {
			if !isBuiltIn(known.Resource{Name: "x." + group}) {
				controller.Permissions.Groups[j] = rename(group)
			}
		}
	}
	return controllers
}
