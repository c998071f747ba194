// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
)

// A cloud controller can run outside the cluster, so it can be running without any evidence.
func TestCloudOwnersAreNeverReportedMissing(t *testing.T) {
	for _, finalizer := range []string{
		owners.FinalizerLoadBalancer, "networking.gke.io/l4-netlb-v2", "service.k8s.aws/resources",
		"service.eks.amazonaws.com/resources",
	} {
		found := Diagnose(makeTerminating(withContent(contentOf(services, makeDeleted("web", finalizer)))))
		if len(found.Findings) != 1 || found.Findings[0].IsOwnerGone {
			t.Errorf("%s: got %+v", finalizer, found.Findings)
		}
	}
}

// The default ClusterRoleBindings of Kubernetes refer to ServiceAccounts that most clusters lack.
func TestDefaultBindingsAreNoEvidence(t *testing.T) {
	account := types.NamespacedName{Namespace: "kube-system", Name: "legacy-service-account-token-cleaner"}
	found := Diagnose(makeTerminating(withContent(contentOf(services, makeDeleted("web", "service.corp.example.com/x"))),
		func(facts *diagnosis.Facts) {
			facts.ClusterRoleBindings = append(facts.ClusterRoleBindings, rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "system:controller:legacy-service-account-token-cleaner"},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
			})
			facts.ServiceAccounts = map[types.NamespacedName]bool{account: false}
		}))
	if len(found.Findings) != 1 || strings.Contains(found.Findings[0].Message, account.Name) {
		t.Errorf("got %+v", found.Findings)
	}
}
