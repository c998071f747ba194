// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

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

	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

// AuditEvent is a write in the audit log of the API server.
type AuditEvent struct {
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
	// ResponseObject is set for writes to Namespaces.
	ResponseObject metav1.PartialObjectMetadata `json:"responseObject"`
	Received       metav1.MicroTime             `json:"requestReceivedTimestamp"`
	Completed      metav1.MicroTime             `json:"stageTimestamp"`
}

// Succeeded reports whether the API server executed the write.
func (e *AuditEvent) Succeeded() bool {
	return e.ResponseStatus.Code >= 200 && e.ResponseStatus.Code < 300
}

// AuditLog is the path of an audit log.
type AuditLog string

// NewAuditLog returns an audit log that exists until the end of the suite.
func NewAuditLog() AuditLog { return AuditLog(filepath.Join(GinkgoT().TempDir(), "audit.log")) }

// Options make the API server log all writes.
func (l AuditLog) Options() []controlplane.Option {
	return []controlplane.Option{
		controlplane.WithAPIServerFlag("audit-policy-file",
			filepath.Join(controlplane.Root(), "test", "framework", "testdata", "audit-policy.yaml")),
		controlplane.WithAPIServerFlag("audit-log-path", string(l)),
	}
}

// Read returns all writes except dry runs, in the order of their responses.
func (l AuditLog) Read() []AuditEvent {
	GinkgoHelper()
	file, err := os.Open(string(l))
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	var events []AuditEvent
	reader := bufio.NewReader(file)
	for {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			// The text after the last newline is incomplete.
			break
		}
		var event AuditEvent
		Expect(json.Unmarshal(line, &event)).To(Succeed(), string(line))
		if !strings.Contains(event.URI, "dryRun=") {
			events = append(events, event)
		}
	}
	slices.SortStableFunc(events, func(a, b AuditEvent) int { return a.Completed.Compare(b.Completed.Time) })
	return events
}
