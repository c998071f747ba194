// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/internal/inventory"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

const namespaceResource = "namespaces"

// ownLease is the name of our own manager's Lease by default.
const ownLease = "nslifecycle.dev"

// deletionConditions are those that a namespace controller writes.
var deletionConditions = []corev1.NamespaceConditionType{
	corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure,
	corev1.NamespaceDeletionContentFailure, corev1.NamespaceContentRemaining, corev1.NamespaceFinalizersRemaining,
}

// findTokens blames what holds the Namespace itself once nothing is left in it. Before
// that, agents may be waiting for the same content as everybody else.
func findTokens(f *Facts) []Finding {
	if !f.isOverdue(f.lastStep()) || !f.isEmpty() {
		return nil
	}
	hasOwn := slices.Contains(f.Namespace.Spec.Finalizers, corev1.FinalizerKubernetes)
	var findings []Finding
	for _, token := range f.tokens() {
		finding := f.blameOnNamespace(token, "spec.finalizers", CauseNamespaceFinalizer)
		f.nameInitializer(&finding, token)
		finding.Remedies = append(finding.Remedies, f.forceBy("namespace-finalizer", token))
		if hasOwn {
			finding.Certainty = Likely
		} else {
			finding.Certainty = Proven
		}
		findings = append(findings, finding)
	}
	if hasOwn || len(findings) > 0 {
		return findings // Whoever owns a finalizer in metadata may wait for these.
	}
	for _, finalizer := range f.Namespace.Finalizers {
		finding := f.blameOnNamespace(finalizer, "metadata.finalizers", CauseNamespaceMetadataFinalizer)
		finding.Remedies = append(finding.Remedies, f.forceBy("metadata-finalizer", finalizer))
		finding.Certainty = Proven
		findings = append(findings, finding)
	}
	return findings
}

// lastStep returns when something about the Namespace last changed.
func (f *Facts) lastStep() time.Time {
	last := f.Namespace.DeletionTimestamp.Time
	for _, condition := range f.Namespace.Status.Conditions {
		if slices.Contains(deletionConditions, condition.Type) && condition.LastTransitionTime.After(last) {
			last = condition.LastTransitionTime.Time
		}
	}
	for _, entry := range f.Namespace.ManagedFields {
		// The status may be written by anybody for any reason, such as by us.
		if entry.Time != nil && entry.Subresource == "finalize" && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// isEmpty tells whether nothing is known to be left, or to be hidden.
func (f *Facts) isEmpty() bool {
	return len(f.Content) == 0 && f.Inventory != nil && f.Inventory.Err() == nil
}

func (f *Facts) blameOnNamespace(name, where string, cause Cause) Finding {
	finding := f.blameOwner(name, nil, cause)
	finding.Cause = cause
	finding.Message = fmt.Sprintf("nothing is left in the namespace; %s in its %s has not been taken off for %s", name,
		where, f.ago(f.lastStep()))
	finding.Evidence[0] = fmt.Sprintf("%s: [%s], deletionTimestamp %s", where,
		strings.Join(f.namesIn(where), ", "), stamp(f.Namespace.DeletionTimestamp.Time))
	finding.Remedies = []string{
		"Find the agent that " + name + " belongs to, and have it run until the namespace is deleted",
		shell.Command("kubectl get namespace %s --output=yaml --show-managed-fields", f.Namespace.Name),
	}
	return finding.about([]Object{{Resource: namespaceResource, Name: f.Namespace.Name}})
}

// nameInitializer says which initializer a token comes with, where a configuration says so.
// Somebody counts on its agent then, wherever that runs, so nobody is called gone.
func (f *Facts) nameInitializer(finding *Finding, token string) {
	if !f.isRead(SourceConfigurations) {
		finding.IsOwnerGone = false
		return
	}
	place := slices.IndexFunc(f.Tokens, func(registered RegisteredToken) bool { return registered.Token == token })
	if place < 0 {
		return
	}
	registered := f.Tokens[place]
	finding.IsOwnerGone = false
	finding.Message += fmt.Sprintf("; it comes with initializer %s of configuration %q, whose agent has to release it",
		registered.Initializer, registered.Configuration)
	finding.Evidence = append(finding.Evidence, fmt.Sprintf(
		"NamespaceInitializerConfiguration %q has finalizer %s for initializer %s", registered.Configuration, token,
		registered.Initializer))
	finding.Remedies[0] = fmt.Sprintf("Have the agent of initializer %s run until the namespace has gone; if it has "+
		"none, take finalizer %s out of the configuration, so that no further namespace gets it",
		registered.Initializer, token)
}

func (f *Facts) namesIn(where string) []string {
	if where == "metadata.finalizers" {
		return f.Namespace.Finalizers
	}
	var names []string
	for _, token := range f.Namespace.Spec.Finalizers {
		names = append(names, string(token))
	}
	return names
}

// findSilence blames the namespace controller if it has not said anything for a while, or
// has stopped in the middle of its work.
func findSilence(f *Facts) []Finding {
	if !slices.Contains(f.Namespace.Spec.Finalizers, corev1.FinalizerKubernetes) ||
		!f.isOverdue(f.Namespace.DeletionTimestamp.Time) || f.Movement.IsSeen() {
		return nil
	}
	hasSpoken := slices.ContainsFunc(deletionConditions, func(conditionType corev1.NamespaceConditionType) bool {
		return f.condition(conditionType) != nil
	})
	leases, isAlive, isThere := f.controllerLeases()
	if hasSpoken && (isAlive || !f.isRead(SourceLeases) || !f.isIdle()) {
		return nil
	}
	if f.isUnnoticed() && !isThere {
		return nil // The last object may have gone this very moment.
	}
	finding := Finding{
		Cause: CauseNamespaceControllerUnresponsive, Certainty: Likely,
		Message: fmt.Sprintf("nobody works on the deletion: %s after it the Namespace has no condition that tells of it",
			f.ago(f.Namespace.DeletionTimestamp.Time)),
		Evidence: leases,
		Remedies: []string{
			"See whether kube-controller-manager runs, with its namespace-controller on, or the manager of nslifecycle",
			"kubectl get leases --namespace=kube-system",
			"kubectl get pods --namespace=kube-system --selector=component=kube-controller-manager",
		},
		Loss: "whatever is in the namespace stays in storage, where it cannot be seen any more",
	}
	if hasSpoken {
		left := "objects are left that nobody has deleted"
		if f.isEmpty() {
			left = "nothing is left, which nobody has noticed"
		}
		finding.Message = fmt.Sprintf("nobody goes on with the deletion: %s, and no namespace controller holds its Lease",
			left)
		finding.Evidence = append(finding.Evidence, f.quotes(deletionConditions...)...)
	}
	// A controller without leader election has no Lease.
	if isThere && !isAlive && !hasSpoken {
		finding.Certainty = Proven
	}
	return []Finding{finding.about([]Object{{Resource: namespaceResource, Name: f.Namespace.Name}})}
}

// isIdle tells whether something is left that has not even been deleted and that nothing
// is known to hold. Where the controller says that it fails, that is what holds it.
func (f *Facts) isIdle() bool {
	if f.failure(corev1.NamespaceDeletionContentFailure) != "" ||
		f.failure(corev1.NamespaceDeletionDiscoveryFailure) != "" {
		return false
	}
	items := f.items()
	isDeleted := slices.ContainsFunc(items, func(i item) bool { return i.DeletionTimestamp != nil })
	isRefused := slices.ContainsFunc(f.Trials, func(trial Trial) bool { return trial.Err != nil })
	return !isDeleted && !isRefused && (len(items) > 0 || f.isEmpty())
}

// isOfControlPlane reports whether a Lease belongs to a controller of Kubernetes or to a namespace
// controller.
func isOfControlPlane(lease *coordinationv1.Lease) bool {
	return lease.Namespace == metav1.NamespaceSystem || lease.Name == ownLease
}

// controllerLeases says what the Leases of the namespace controllers tell, whether one of
// them is alive, and whether there are any.
func (f *Facts) controllerLeases() (texts []string, isAlive, isThere bool) {
	text, isAlive, isThere := f.leaseOf(controllerManager)
	texts = []string{text}
	for i := range f.Leases {
		lease := &f.Leases[i]
		if lease.Name != ownLease || lease.Spec.RenewTime == nil {
			continue
		}
		text, isFresh := f.readLease(lease)
		texts = append(texts, text)
		isThere, isAlive = true, isAlive || isFresh
	}
	if len(texts) == 1 && f.isRead(SourceLeases) {
		texts = append(texts, "there is no Lease "+ownLease+" of nslifecycle")
	}
	return texts, isAlive, isThere
}

// findUnknown is for a namespace that should have gone and does not, where nothing else was
// found.
func findUnknown(f *Facts) []Finding {
	if !f.isOverdue(f.lastStep()) || f.Movement.IsSeen() || f.hasTime() || f.isUnnoticed() {
		return nil
	}
	// What could not be read may hold a healthy controller, or another cause.
	finding := Finding{
		Cause: CauseUnknown, Certainty: Likely,
		Message: "something holds the namespace, and nothing tells what",
		Evidence: append([]string{fmt.Sprintf("deletionTimestamp %s, spec.finalizers: [%s]",
			stamp(f.Namespace.DeletionTimestamp.Time), strings.Join(f.namesIn("spec.finalizers"), ", "))},
			f.quotes(deletionConditions...)...),
		Remedies: []string{
			shell.Command("kubectl get namespace %s --output=yaml", f.Namespace.Name),
			"See the log of the namespace controller, in kube-controller-manager or in the manager of nslifecycle",
		},
	}
	switch {
	case len(f.Content) > 0 && !slices.Contains(f.Namespace.Spec.Finalizers, corev1.FinalizerKubernetes):
		finding.Message = fmt.Sprintf("%s left in the namespace; the token kubernetes, by which a namespace controller "+
			"deletes what is in it, was released before that was gone", f.whatIsLeft())
		finding.Remedies = append([]string{"Delete what is left before the last token or finalizer of the Namespace is " +
			"released: nobody sees it afterwards"}, finding.Remedies...)
		finding.Loss = "what is left stays in storage without a namespace"
	case len(f.Content) > 0:
		finding.Message = fmt.Sprintf("%s left in the namespace, and nothing tells why", f.whatIsLeft())
	}
	return []Finding{finding.some(f.items())}
}

// isUnnoticed tells whether the last object has gone and the namespace controller has not
// seen that yet: it looks again within a minute.
func (f *Facts) isUnnoticed() bool {
	return f.isEmpty() && f.failure(corev1.NamespaceContentRemaining) != ""
}

// hasTime tells whether something is left that is being deleted and still has time.
func (f *Facts) hasTime() bool {
	return slices.ContainsFunc(f.items(), func(i item) bool { return i.DeletionTimestamp != nil && !f.isOverdueItem(i) })
}

// whatIsLeft counts what is left, a few types by name.
func (f *Facts) whatIsLeft() string {
	var texts []string
	count, isAtLeast := 0, false
	for _, content := range f.Content {
		if content.Count == 0 {
			continue
		}
		count += content.Count
		isAtLeast = isAtLeast || content.IsAtLeast
		texts = append(texts, fmt.Sprintf("%d %s", content.Count, content.Type))
	}
	switch {
	case count == 0:
		return "it is not known what is"
	case count == 1:
		return texts[0] + " is"
	case isAtLeast:
		return "at least " + joinSome(texts) + " are"
	}
	return joinSome(texts) + " are"
}

// countOf returns how many objects of all types are left.
func countOf(contents []inventory.Content) int {
	count := 0
	for _, content := range contents {
		count += content.Count
	}
	return count
}
