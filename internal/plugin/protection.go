// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionv1client "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"

	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// enforcement is whether the cluster enforces deletion protection.
type enforcement string

const (
	enforced           enforcement = "Enforced"
	notEnforced        enforcement = "NotEnforced"
	enforcementUnknown enforcement = "Unknown"
)

// policyReader reads the policies if a Namespace has the label for deletion protection.
type policyReader struct {
	*session
	isRead   bool
	policies []admissionv1.ValidatingAdmissionPolicy
	bindings []admissionv1.ValidatingAdmissionPolicyBinding
	// unread is why the policies are not known.
	unread []string
}

// protection returns whether the label for deletion protection is enforced, or "" if the Namespace does not have it.
func (r *policyReader) protection(ctx context.Context, namespace *corev1.Namespace) enforcement {
	if !nsobject.IsProtected(namespace) {
		return ""
	}
	if !r.isRead {
		r.isRead = true
		if err := r.read(ctx); err != nil {
			r.unread = []string{err.Error()}
		}
	}
	switch {
	case len(r.unread) > 0:
		return enforcementUnknown
	case policies.IsProtectionEnforced(r.policies, r.bindings):
		return enforced
	}
	return notEnforced
}

func (r *policyReader) read(ctx context.Context) error {
	client, err := newClient(r.session, admissionv1client.NewForConfig)
	if err != nil {
		return err
	}
	options := metav1.ListOptions{LabelSelector: internalv1alpha1.LabelPolicy}
	found, err := client.ValidatingAdmissionPolicies().List(ctx, options)
	if apierrors.IsNotFound(err) {
		return nil // The API server does not serve policies.
	}
	if err != nil {
		return err
	}
	bindings, err := client.ValidatingAdmissionPolicyBindings().List(ctx, options)
	if err != nil {
		return err
	}
	r.policies, r.bindings = found.Items, bindings.Items
	return nil
}
