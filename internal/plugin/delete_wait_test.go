// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
)

func TestDeletionProgress(t *testing.T) {
	g := NewWithT(t)
	progress := &deletionProgress{highest: map[string]int{}}
	progress.add(map[string]int{"configmaps": 10, "pods": 2})
	progress.add(map[string]int{"configmaps": 4, "secrets": 5})
	g.Expect(progress.lines()).To(Equal([]string{
		"secrets: 5 of 5 remaining", "configmaps: 4 of 10 remaining", "pods: 0 of 2 remaining",
	}))
}

func TestDiagnosisTexts(t *testing.T) {
	g := NewWithT(t)
	unknown := &diagnosis.Diagnosis{Result: diagnosis.Progressing, Summary: "is being deleted"}
	g.Expect(diagnosisTexts(unknown)).To(Equal([]string{"No cause found: is being deleted"}))
	finding := diagnosis.Finding{
		Cause: diagnosis.CauseForbidden, Rank: diagnosis.RankProven, Message: "cannot list the pods of the namespace",
		Remedies: []diagnosis.Remedy{
			diagnosis.Inspect("kubectl get pods"),
			diagnosis.Resolve("grant the permission to list pods in the namespace"),
		},
	}
	blocked := &diagnosis.Diagnosis{Result: diagnosis.Blocked, Findings: []diagnosis.Finding{finding, finding, finding, finding}}
	texts := diagnosisTexts(blocked)
	g.Expect(texts).To(HaveLen(maxShownFindings))
	g.Expect(strings.Split(texts[0], "\n")).To(Equal([]string{
		"Forbidden (proven): cannot list the pods of the namespace",
		"  " + "Try:" + " grant the permission to list pods in the namespace",
	}))
}

// TestReportedOnce verifies that a namespace that remains stuck is reported once.
func TestReportedOnce(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	waiter := &deleteWaiter{
		session: newSession(genericiooptions.IOStreams{Out: &out, ErrOut: io.Discard}),
		name:    "shop", display: &printer.Display{Out: &out}, progress: &deletionProgress{highest: map[string]int{}}, reported: map[string]bool{},
		namespace: &corev1.Namespace{},
	}
	stuck := func(age string, others ...string) {
		result := &diagnosis.Diagnosis{Result: diagnosis.Blocked}
		for _, name := range append([]string{"orders"}, others...) {
			result.Findings = append(result.Findings, diagnosis.Finding{
				Cause: diagnosis.CauseFinalizerPending, Rank: diagnosis.RankInferred,
				Message: name + " should have been deleted " + age + " ago",
			})
		}
		waiter.showDiagnosis(result)
	}
	fail := func(messages ...string) {
		waiter.namespace.Status.Conditions = []corev1.NamespaceCondition{{
			Type: corev1.NamespaceDeletionContentFailure, Status: corev1.ConditionTrue,
			Message: "Failed: " + strings.Join(messages, ", "),
		}}
		waiter.show()
	}
	waiter.progress.add(map[string]int{"pods": 1})
	fail("dial 127.0.0.1:8443", "webhook a denied")
	stuck("31s")
	before := out.String()
	g.Expect(before).To(And(ContainSubstring("pods: 1 of 1"), ContainSubstring("webhook a"), ContainSubstring("orders")))
	for _, age := range []string{"61s", "2m2s", "3h"} {
		waiter.progress.add(map[string]int{"pods": 1})
		fail("webhook a denied", "dial 127.0.0.1:9443")
		stuck(age)
	}
	g.Expect(out.String()).To(Equal(before))

	stuck("4h", "payments")
	fail("webhook b denied")
	g.Expect(strings.TrimPrefix(out.String(), before)).To(And(
		ContainSubstring("payments"), ContainSubstring("webhook b"), Not(ContainSubstring("orders")),
	))
}

func TestUnreadableNamespace(t *testing.T) {
	namespaces := corev1.Resource("namespaces")
	for name, test := range map[string]struct {
		err   error
		isEnd bool
	}{
		"forbidden": {err: apierrors.NewForbidden(namespaces, "shop", errors.New("no")), isEnd: true},
		// client-go then obtains new credentials.
		"unauthorized": {err: apierrors.NewUnauthorized("expired")},
		"throttled":    {err: apierrors.NewTooManyRequests("busy", 1)},
		"unavailable":  {err: errors.New("connection refused")},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			waiter := &deleteWaiter{
				session: newSession(genericiooptions.NewTestIOStreamsDiscard()), name: "shop",
			}
			err := waiter.handleEvent(namespaceEvent{err: test.err})
			if !test.isEnd {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(test.err))
			g.Expect(err).To(MatchError(ContainSubstring(`"shop"`)))
		})
	}
}

func TestOutage(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	session := newSession(genericiooptions.IOStreams{ErrOut: &out})
	var current outage
	for _, port := range []string{"1", "2", "3"} {
		current.warn(session, "shop", errors.New("read tcp 127.0.0.1:"+port+": connection refused"))
	}
	g.Expect(strings.Count(out.String(), "Warning:")).To(Equal(1))
	current.warn(session, "shop", errors.New("forbidden"))
	current = outage{}
	current.warn(session, "shop", errors.New("forbidden"))
	g.Expect(strings.Count(out.String(), "Warning:")).To(Equal(3))
}
