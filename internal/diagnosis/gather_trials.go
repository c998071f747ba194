// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
)

const (
	// mostTrials is how many dry runs are made in all, and of each kind for one type.
	mostTrials        = 30
	mostTrialsOfAType = 3
)

// errMayNotPatch stands for the answer to a question that is not asked.
var errMayNotPatch = errors.New("the right to patch is missing")

// try makes dry runs of what should happen to what is left: of the deletion of what is not
// being deleted, and of the removal of finalizers from what is.
func (g *gathering) try(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var deletions []item
	var releases []release
	g.note(func(facts *Facts) { deletions, releases = chooseDeletions(facts), chooseReleases(facts) })
	var trials []func()
	for _, of := range deletions {
		trials = append(trials, func() {
			g.tried(Trial{VerbDelete, of.Type, of.Name, "", g.trier.tryDelete(ctx, of)})
		})
	}
	for _, chosen := range releases {
		if g.IsWithoutPatches {
			g.tried(Trial{VerbPatch, chosen.Type, chosen.Name, chosen.finalizer, errMayNotPatch})
			continue
		}
		trials = append(trials, func() {
			err := g.trier.tryRelease(ctx, chosen.item, chosen.finalizer)
			g.tried(Trial{VerbPatch, chosen.Type, chosen.Name, chosen.finalizer, err})
		})
	}
	sideBySide(trials...)
	g.note(func(facts *Facts) {
		slices.SortFunc(facts.Trials, func(a, b Trial) int {
			return cmp.Or(strings.Compare(a.Verb, b.Verb), strings.Compare(a.Type.String(), b.Type.String()),
				strings.Compare(a.Name, b.Name), strings.Compare(a.Finalizer, b.Finalizer))
		})
	})
}

// tried notes the answer to a trial, unless it tells nothing: the object has changed or
// gone, or who asks may not do this.
func (g *gathering) tried(trial Trial) {
	switch err := trial.Err; {
	case err != nil && (isMissingRight(err) || errors.Is(err, errMayNotPatch)):
		g.note(func(facts *Facts) {
			facts.Unread = append(facts.Unread, Unread{SourceTrials, fmt.Sprintf(
				"whether the API server would accept a %s of %s is not known: the right to %s them is missing",
				trial.Verb, trial.Type, strings.ToLower(trial.Verb))})
		})
	case errors.Is(err, metadataclient.ErrNotSent),
		err != nil && strings.Contains(err.Error(), "does not support dry run"):
		g.note(func(facts *Facts) {
			facts.Unread = append(facts.Unread, Unread{SourceTrials, fmt.Sprintf(
				"whether the API server would accept a %s of %s is not known: %s", trial.Verb, trial.Type,
				oneLine(err.Error()))})
		})
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsMethodNotSupported(err):
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		g.note(func(facts *Facts) {
			facts.Unread = append(facts.Unread, Unread{SourceTrials, fmt.Sprintf(
				"a dry run of a %s of %s was not answered within %s", trial.Verb, trial.Type, answerTimeout)})
		})
	default:
		g.note(func(facts *Facts) { facts.Trials = append(facts.Trials, trial) })
	}
}

// keepsToDryRuns tells whether a dry run of a write to a group changes nothing for sure. An
// aggregated API server that does not know of dry runs makes the write. Where it is not
// known which groups are aggregated, those without a domain are not: kube-apiserver
// itself serves them.
func (f *Facts) keepsToDryRuns(group string) bool {
	if !f.isRead(SourceAPIServices) {
		return !strings.Contains(group, ".")
	}
	return !slices.ContainsFunc(f.APIServices, func(service APIService) bool {
		return service.GroupVersion.Group == group
	})
}

// chooseDeletions returns a few objects that are not being deleted: first those which the
// namespace's own condition names.
func chooseDeletions(facts *Facts) []item {
	failure := facts.failure(corev1.NamespaceDeletionContentFailure)
	var candidates []item
	for _, i := range facts.items() {
		if i.DeletionTimestamp == nil && i.Can("delete") && i.UID != "" && facts.keepsToDryRuns(i.Group) {
			candidates = append(candidates, i)
		}
	}
	isNamed := func(i item) int {
		if strings.Contains(failure, `"`+i.Name+`"`) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(candidates, func(a, b item) int { return cmp.Compare(isNamed(a), isNamed(b)) })
	var chosen []item
	counts := map[schema.GroupResource]int{}
	for _, i := range candidates {
		resource := i.GroupResource()
		if counts[resource]++; counts[resource] <= mostTrialsOfAType && len(chosen) < mostTrials {
			chosen = append(chosen, i)
		}
	}
	return chosen
}

// release is a finalizer of an object.
type release struct {
	item
	finalizer string
}

// chooseReleases returns one object of each type for each finalizer on what is being
// deleted.
func chooseReleases(facts *Facts) []release {
	var chosen []release
	seen := map[string]bool{}
	for _, i := range facts.items() {
		if i.DeletionTimestamp == nil || !i.Can("patch") || !facts.keepsToDryRuns(i.Group) {
			continue
		}
		for _, finalizer := range i.Finalizers {
			key := i.Type.String() + " " + finalizer
			if !seen[key] && len(chosen) < mostTrials {
				seen[key] = true
				chosen = append(chosen, release{i, finalizer})
			}
		}
	}
	return chosen
}
