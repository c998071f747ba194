// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"context"
	"encoding/json"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/test/framework/observer"
)

// recording contains every version of every namespace, and the requests of all users.
type recording struct{ *observer.Observer }

// record observes namespaces until the end of the spec.
func record(ctx context.Context) recording {
	GinkgoHelper()
	started, err := observer.Start(ctx, []observer.Server{{Config: cluster.Admin.Config, Log: string(cluster.AuditLog)}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		// The specs check the evidence themselves.
		_, err := started.Stop(ctx, observer.Rules{
			MayWrite: func(authenticationv1.UserInfo, string, ...string) bool { return true },
		})
		Expect(err).NotTo(HaveOccurred())
	})
	return recording{started}
}

// conditions returns all conditions that any version of a namespace has.
func (r recording) conditions(ctx context.Context, uid types.UID) []string {
	GinkgoHelper()
	evidence, err := r.Collect(ctx)
	Expect(err).NotTo(HaveOccurred())
	var all []string
	for _, change := range evidence.Changes {
		if change.Object.UID != uid || change.IsListed || change.IsDeleted {
			continue
		}
		var status corev1.NamespaceStatus
		Expect(json.Unmarshal(change.Object.Status, &status)).To(Succeed())
		for _, condition := range status.Conditions {
			all = append(all, fmt.Sprintf("%s=%s %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message))
		}
	}
	return all
}
