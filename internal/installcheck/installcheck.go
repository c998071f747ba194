// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package installcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/verify"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// Checker checks one installation in one cluster.
type Checker struct {
	// Client reads from the API server and not from a cache.
	Client client.Client
	Clock  clock.PassiveClock
	// SystemNamespace is the namespace of the installation, and LeaseName is the name of the Lease
	// that its managers use for leader election.
	SystemNamespace, LeaseName string
	// HasInitialization reports whether the managers run the initialization controllers, which require
	// the admission policies.
	HasInitialization bool
}

// Result is the result of one check.
type Result struct {
	// Check is the name of the check.
	Check string
	// Err is the error of a failed check, or nil.
	Err error
	// IsUnknown reports whether Err is why the check has no result.
	IsUnknown bool
	// Warning describes what an administrator should know although the check passed; "" if there is nothing.
	Warning string
}

// Run runs all checks, even if some fail.
func (c *Checker) Run(ctx context.Context) []Result {
	results := []Result{{Check: checkLeader, Err: c.checkLeader(ctx)}}
	if !c.HasInitialization {
		return results
	}
	set, err := c.readSet(ctx)
	results = append(results, Result{Check: checkSet, Err: err})
	policies := Result{Check: checkPolicies, Err: err}
	if err == nil {
		policies.Warning, policies.Err = checkEnforced(set)
	}
	return append(results,
		policies,
		Result{Check: checkLimits, Err: c.checkLimits(ctx)},
		Result{Check: checkCondition, Err: c.checkCondition(ctx)},
	)
}

// Join joins the errors of the results. It returns nil if all checks passed.
func Join(results []Result) error {
	var failed []error
	for _, result := range results {
		failed = append(failed, result.Err)
	}
	return errors.Join(failed...)
}

// Print writes one line for each result.
func Print(out io.Writer, results []Result) {
	for _, result := range results {
		switch {
		case result.Err != nil && result.IsUnknown:
			fmt.Fprintf(out, "?     %s: %v\n", result.Check, result.Err)
		case result.Err != nil:
			fmt.Fprintf(out, "FAIL  %s: %v\n", result.Check, result.Err)
		case result.Warning != "":
			fmt.Fprintf(out, "warn  %s: %s\n", result.Check, result.Warning)
		default:
			fmt.Fprintf(out, "ok    %s\n", result.Check)
		}
	}
}

func (c *Checker) checkLeader(ctx context.Context) error {
	var lease coordinationv1.Lease
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.SystemNamespace, Name: c.LeaseName}, &lease)
	if apierrors.IsNotFound(err) {
		return errors.New(messageNoLease(c.SystemNamespace, c.LeaseName))
	}
	if err != nil {
		return fmt.Errorf("failed to get Lease %q in namespace %q: %w", c.LeaseName, c.SystemNamespace, err)
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if holder == "" || lease.Spec.RenewTime == nil {
		return errors.New(messageLeaderStopped)
	}
	validity := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	if c.Clock.Since(lease.Spec.RenewTime.Time) > validity {
		return errors.New(messageLeaseExpired(holder, lease.Spec.RenewTime.Time))
	}
	return nil
}

func (c *Checker) readSet(ctx context.Context) (*internalv1alpha1.NamespaceInitializerSet, error) {
	set := &internalv1alpha1.NamespaceInitializerSet{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: internalv1alpha1.EffectiveSetName}, set); err != nil {
		return set, fmt.Errorf("failed to get NamespaceInitializerSet %q: %w", internalv1alpha1.EffectiveSetName, err)
	}
	return set, nil
}

// checkEnforced returns an error that explains why the admission controller does not report the set as enforced, or a
// warning in audit mode.
func checkEnforced(set *internalv1alpha1.NamespaceInitializerSet) (warning string, err error) {
	enforced, _ := initialization.EnforcedCondition(set)
	switch {
	case enforced.Reason == v1alpha1.ReasonAuditMode:
		return enforced.Message, nil
	case enforced.Status != metav1.ConditionTrue:
		return "", errors.New(enforced.Message)
	}
	return "", nil
}

// The check runs as the manager, in the Pod of `helm test`.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=list

func (c *Checker) checkLimits(ctx context.Context) error {
	installed, err := verify.Read(ctx, c.Client)
	if missing := installed.MissingLimits(); err == nil && missing != "" {
		return errors.New(missing)
	}
	return err
}

func (c *Checker) checkCondition(ctx context.Context) error {
	var namespace corev1.Namespace
	if err := c.Client.Get(ctx, client.ObjectKey{Name: c.SystemNamespace}, &namespace); err != nil {
		return fmt.Errorf("failed to get namespace %q: %w", c.SystemNamespace, err)
	}
	if nsobject.FindCondition(&namespace, v1alpha1.ConditionInitializing) == nil {
		return errors.New(messageNoCondition(c.SystemNamespace))
	}
	return nil
}
