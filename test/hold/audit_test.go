// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// No user without the verb has ever written to an initializing namespace. A write violates this if its
// response was sent after the response to the creation of the namespace, and before the API server
// received the write that completed the initialization.
var _ = AfterSuite(func() {
	events := auditLog.Read()
	type period struct{ created, opened metav1.MicroTime }
	initializing := map[string]*period{}
	for _, event := range events {
		_, isLabeled := event.ResponseObject.Labels[v1alpha1.LabelInitializing]
		switch name := event.ResponseObject.Name; {
		case event.ObjectRef.Resource != "namespaces" || event.ResponseObject.Kind != "Namespace":
		case event.Verb == "create" && isLabeled:
			initializing[name] = &period{created: event.Completed}
		case !isLabeled && initializing[name] != nil && initializing[name].opened.IsZero():
			initializing[name].opened = event.Received
		}
	}
	checked := 0
	for _, event := range events {
		period, ok := initializing[event.ObjectRef.Namespace]
		if !ok || event.ObjectRef.Resource == "namespaces" || !slices.Contains(nonHolders(), event.User.Username) {
			continue
		}
		checked++
		if event.Stage == "ResponseComplete" && event.ResponseStatus.Code < 300 && event.Completed.After(period.created.Time) {
			Expect(period.opened.IsZero()).To(BeFalse(), "%+v", event)
			Expect(event.Completed.Time).To(BeTemporally(">", period.opened.Time), "%+v", event)
		}
	}
	GinkgoWriter.Printf("Audited %d writes to %d initializing namespaces.\n", checked, len(initializing))
})

// nonHolders are the users of this suite without the verb.
func nonHolders() []string {
	return []string{framework.OrdinaryUser, otherUser}
}
