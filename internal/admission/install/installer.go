// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/internal/admission/inject"
	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	"github.com/nslifecycle/nslifecycle/internal/admission/verify"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
)

// Installer makes API servers enforce the effective set. It must not be used concurrently.
type Installer struct {
	// Client reads the validating policies from its cache, and writes.
	client.Client
	// Live reads the mutating policies, the policies that Install applies, and webhook configurations from the API server:
	// a policy that is missing in the cache can exist without its label, and with failurePolicy Fail.
	Live        client.Reader
	Discovery   discovery.DiscoveryInterfaceWithContext
	ServerClock *servertime.Clock
	// URL is the address of the webhooks for an API server that cannot reach their Service; empty otherwise.
	URL string
}

// Result is what Install has found and done.
type Result struct {
	verify.Installed
	// HasWebhooks reports whether the component config/webhook is installed.
	HasWebhooks bool
	// Readable contains an empty object of each other type that the caller can watch: not every API server serves the
	// types, and not every installation permits to read them.
	Readable []client.Object
	// Unauthorized is the end of a message about missing permissions, or "".
	Unauthorized string
	// Err is an error that does not concern what injects.
	Err error

	set *internalv1alpha1.NamespaceInitializerSet
	// injecting is the configuration of the webhooks that replace the mutating policies, nil if it is not installed or may
	// not be read.
	injecting *admissionv1.MutatingWebhookConfiguration
}

// The operator applies the policies in config/validating, confined-initializers, and the binding of inject. The
// permissions for config/mutating and for webhook configurations are in config/webhook. Server-side apply requires
// create for a new object, and names it in the request.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicybindings,resourceNames=nslifecycle-inject,verbs=create;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=nslifecycle-templates;nslifecycle-waiting-subjects;nslifecycle-waiting-subjects-resources-named-namespaces;nslifecycle-initializer-subjects,verbs=create;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=nslifecycle-confined-initializers,verbs=create;patch;delete

// Install applies the validating policies, configures the webhooks, applies the mutating policies and binds inject, and
// then applies the policy for confined initializers. An error means that the policies could not be read, or that what
// injects could not be installed.
func (i *Installer) Install(ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet) (Result, error) {
	result := Result{set: set}
	var err error
	if result.Installed, err = verify.Read(ctx, i.Client); err != nil {
		return result, err
	}
	isForbidden, err := i.applyValidating(ctx, &result)
	result.Err = err
	if err := i.installInjecting(ctx, &result); err != nil {
		return result, err
	}
	// Independent of the verification, which a policy of another project can prevent.
	result.Err = errors.Join(result.Err, i.confine(ctx, &result))
	if isForbidden {
		result.Unauthorized += messageNotApplied
	}
	return result, nil
}

// applyValidating applies the policies in config/validating, and returns whether a permission is missing. With the gate
// policy as their owner, they are removed together with the policies in the manifests.
func (i *Installer) applyValidating(ctx context.Context, result *Result) (isForbidden bool, err error) {
	if len(result.Missing(policies.InstalledFirst())) > 0 {
		return false, nil
	}
	_, isAudited := result.Audited()
	hasApplied, isForbidden, err := i.apply(ctx, result.Gate(), policies.Validating(isAudited))
	if !hasApplied {
		return isForbidden, err
	}
	installed, readErr := verify.Read(ctx, i.Live) // The cache does not contain them yet.
	if readErr == nil {
		result.Installed = installed
	}
	return isForbidden, errors.Join(err, readErr)
}

// installInjecting makes API servers inject, unless nothing protects the state.
func (i *Installer) installInjecting(ctx context.Context, result *Result) error {
	var err error
	if result.ServesMutating, err = verify.ServesMutating(ctx, i.Discovery); err != nil {
		return err
	}
	if len(result.Missing(policies.Protecting())) == 0 {
		// The path of a webhook must change before the policies complete initializations.
		if err := i.configureWebhooks(ctx, result); err != nil {
			return err
		}
		if result.ServesMutating {
			err = i.applyMutating(ctx, result)
		}
	}
	if err == nil && result.ServesMutating {
		err = result.ReadMutating(ctx, i.Live)
	}
	return err
}

// applyMutating applies the mutating policies and binds inject, unless the policy could reject namespaces because an
// API server does not recognize the parameter kind yet. The policy is the owner of the binding: an administrator can
// have applied it.
func (i *Installer) applyMutating(ctx context.Context, result *Result) error {
	result.Readable = append(result.Readable, policies.MutatingObjects()...)
	if _, _, err := i.apply(ctx, result.Gate(), policies.Mutating()); err != nil {
		return err
	}
	policy := &admissionv1.MutatingAdmissionPolicy{}
	if exists, err := i.get(ctx, internalv1alpha1.InjectConfiguration, policy); err != nil || !exists {
		return err
	}
	isStrict := ptr.Deref(policy.Spec.FailurePolicy, admissionv1.Fail) == admissionv1.Fail
	if isStrict && i.ServerClock.Since(result.set.CreationTimestamp.Time) < recognizedAfter {
		return nil
	}
	_, _, err := i.apply(ctx, policy, policies.InjectBinding())
	return err
}

// get reads an object of the API server, and returns whether it exists and may be read.
func (i *Installer) get(ctx context.Context, name string, object client.Object) (bool, error) {
	err := i.Live.Get(ctx, client.ObjectKey{Name: name}, object)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return false, nil
	}
	if err != nil {
		kind, _ := i.GroupVersionKindFor(object)
		return false, fmt.Errorf("failed to get %s %q: %w", kind.Kind, name, err)
	}
	return true, nil
}

// confine applies the policy confined-initializers for the confined subjects in the set, and deletes it if there are
// none: then, the API server evaluates nothing for other users. It applies nothing while another policy is missing,
// because then an administrator might be removing the policies.
func (i *Installer) confine(ctx context.Context, result *Result) error {
	subjects := policies.ComputeConfined(result.set.Initializers, result.set.SystemNamespace)
	isForbidden := false
	var err error
	switch {
	case len(subjects) == 0:
		name := metav1.ObjectMeta{Name: policies.ConfinedName}
		err = i.deleteExisting(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name},
			&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: name})
	case len(result.Missing(policies.Protecting())) == 0:
		_, isForbidden, err = i.apply(ctx, result.Gate(), subjects.Render())
	}
	if isForbidden || apierrors.IsForbidden(err) {
		result.Unauthorized, err = messageNotConfined(len(subjects)), nil
	}
	return err
}

// deleteExisting deletes the objects, and ignores objects that do not exist.
func (i *Installer) deleteExisting(ctx context.Context, objects ...client.Object) error {
	for _, object := range objects {
		err := i.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err == nil {
			err = i.Delete(ctx, object, client.Preconditions{UID: new(object.GetUID())})
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("failed to delete the policy %q: %w", object.GetName(), err)
		}
	}
	return nil
}

// SetFail sets the failure policy of what injects to Fail, and that of the policies whose parameters the set contains,
// after a verification. The API server then denies requests while it cannot read the set, for example shortly after a
// restart. The manifests cannot contain Fail: no Namespace could be created until the API server has discovered the
// set's type. SetFail adds a missing permission, and the time until every API server has discovered the type, to the
// status.
func (i *Installer) SetFail(ctx context.Context, result *Result, status *verify.Status) error {
	if status.WebhooksMayFail {
		webhook := inject.Injecting(result.injecting)
		err := i.updateInjecting(ctx, result.injecting, func() { webhook.FailurePolicy = ptr.To(admissionv1.Fail) })
		if err != nil {
			return err
		}
	}
	if !status.MayFail {
		return nil
	}
	left := recognizedAfter - i.ServerClock.Since(result.set.CreationTimestamp.Time)
	var errs []error
	for _, policy := range policies.Where(func(p policies.Policy) bool { return p.FailsFor != nil }) {
		for _, installed := range result.Of(policy) {
			switch {
			case installed.Fails || !policy.FailsFor(result.set):
			case left > 0:
				status.RetryWithin(left)
			default:
				errs = append(errs, i.setFail(ctx, installed, status))
			}
		}
	}
	return errors.Join(errs...)
}

func (i *Installer) setFail(ctx context.Context, policy verify.Object, status *verify.Status) error {
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"spec":{"failurePolicy":%q}}`,
		policy.GetResourceVersion(), admissionv1.Fail)
	changed := policy.DeepCopyObject().(client.Object)
	err := i.Patch(ctx, changed, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(nsobject.FieldOwner))
	switch {
	case apierrors.IsForbidden(err):
		status.Message += messageFailurePolicyForbidden(policy.GetName())
		status.RetryWithin(verify.UnconfirmedRetryInterval)
		return nil
	case err != nil:
		return fmt.Errorf("failed to set failurePolicy of %q to Fail: %w", policy.GetName(), err)
	}
	log.FromContext(ctx).Info("Set failurePolicy of an admission policy to Fail", "policy", policy.GetName())
	return nil
}

// The ends of messages about missing permissions.
func messageFailurePolicyForbidden(policy string) string {
	return fmt.Sprintf("; a restarting API server can admit requests without policy %q, because the operator is not "+
		"authorized to set its failurePolicy to Fail: set it manually", policy)
}

func messageNotConfined(subjects int) string {
	if subjects == 0 {
		return fmt.Sprintf("; subjects of initializers are still confined, because the operator is not authorized to delete "+
			"ValidatingAdmissionPolicy %q: delete it manually", policies.ConfinedName)
	}
	return fmt.Sprintf("; %d subjects of initializers are not confined as configured, because the operator is not "+
		"authorized to apply ValidatingAdmissionPolicy %q; run: %s", subjects, policies.ConfinedName, policies.InstallCommand)
}

const messageNotApplied = "; the operator is not authorized to apply its admission policies, which differ; run: " +
	policies.InstallCommand
