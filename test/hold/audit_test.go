// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// auditEvent is a write in the audit log of the API server.
type auditEvent struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	URI   string `json:"requestURI"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource  string `json:"resource"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	ResponseObject metav1.PartialObjectMetadata `json:"responseObject"`
	Received       metav1.MicroTime             `json:"requestReceivedTimestamp"`
	Completed      metav1.MicroTime             `json:"stageTimestamp"`
}

func auditFlags() []controlplane.Option {
	auditLog = filepath.Join(GinkgoT().TempDir(), "audit.log")
	return []controlplane.Option{
		controlplane.WithAPIServerFlag("audit-policy-file",
			filepath.Join(controlplane.Root(), "test", "hold", "testdata", "audit-policy.yaml")),
		controlplane.WithAPIServerFlag("audit-log-path", auditLog),
	}
}

// No user without the verb has ever written to an initializing namespace. A write violates this if its
// response was sent after the response to the creation of the namespace, and before the API server
// received the write that completed the initialization.
var _ = AfterSuite(func() {
	events := readAudit()
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
		if event.ResponseStatus.Code < 300 && event.Completed.After(period.created.Time) {
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

// readAudit returns the successful and the rejected writes in the order of their responses.
func readAudit() []auditEvent {
	GinkgoHelper()
	file, err := os.Open(auditLog)
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	var events []auditEvent
	reader := bufio.NewReader(file)
	for {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			// The text after the last newline is incomplete.
			break
		}
		var event auditEvent
		Expect(json.Unmarshal(line, &event)).To(Succeed(), string(line))
		if event.Stage == "ResponseComplete" && !strings.Contains(event.URI, "dryRun=") {
			events = append(events, event)
		}
	}
	slices.SortFunc(events, func(a, b auditEvent) int { return a.Completed.Compare(b.Completed.Time) })
	return events
}
