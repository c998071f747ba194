// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	discoveryfake "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	"github.com/nslifecycle/nslifecycle/internal/admission/verify"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
	"github.com/nslifecycle/nslifecycle/test/framework/policytest"
)

var (
	now          = policytest.Now
	errOutage    = policytest.ErrUnavailable
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "policies"}, "x", nil)
)

// server is a fake API server.
type server struct {
	client.Client
	discovery *clienttesting.Fake
	// written contains the successful writes.
	written []string
	// writeError is the error of all writes, or of those whose description contains failing.
	writeError error
	failing    string
	// readError is the error with which webhook configurations are read.
	readError error
}

func newServer(servesMutating bool, objects ...client.Object) *server {
	s := &server{discovery: &clienttesting.Fake{}}
	s.serve(servesMutating)
	s.Client = policytest.NewClient(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, ok := object.(*admissionv1.MutatingWebhookConfiguration); ok && s.readError != nil {
				return s.readError
			}
			return c.Get(ctx, key, object, options...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			named := object.(interface {
				GetName() string
				GetKind() string
			})
			return s.write("apply", named.GetKind(), named.GetName(), func() error { return c.Apply(ctx, object, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return s.writeObject("patch", object, func() error { return c.Patch(ctx, object, patch, options...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			return s.writeObject("update", object, func() error { return c.Update(ctx, object, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return s.writeObject("delete", object, func() error { return c.Delete(ctx, object, options...) })
		},
	}, objects...)
	return s
}

func (s *server) writeObject(verb string, object client.Object, write func() error) error {
	kind, err := apiutil.GVKForObject(object, scheme.New())
	if err != nil {
		return err
	}
	return s.write(verb, kind.Kind, object.GetName(), write)
}

func (s *server) write(verb, kind, name string, write func() error) error {
	switch {
	case strings.HasSuffix(kind, "Binding"):
		kind = "binding"
	case strings.HasSuffix(kind, "Policy"):
		kind = "policy"
	}
	description := verb + " " + kind + " " + name
	if s.writeError != nil && strings.Contains(description, s.failing) {
		return s.writeError
	}
	s.written = append(s.written, description)
	return write()
}

func (s *server) serve(mutating bool) {
	list := &metav1.APIResourceList{GroupVersion: "admissionregistration.k8s.io/v1"}
	for _, name := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		if mutating {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
	}
	s.discovery.Resources = []*metav1.APIResourceList{list}
}

func (s *server) installer() *Installer {
	return &Installer{
		Client: cache{s}, Live: s, Discovery: &discoveryfake.FakeDiscovery{Fake: s.discovery},
		ServerClock: servertime.NewClock(clocktesting.NewFakePassiveClock(now)),
	}
}

// cache contains only what the cache of the manager contains.
type cache struct{ client.Client }

func (c cache) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := c.Client.Get(ctx, key, object, options...)
	switch object.(type) {
	case *admissionv1.MutatingAdmissionPolicy, *admissionv1.MutatingAdmissionPolicyBinding:
		return errors.New("not every API server serves this type")
	case *admissionv1.MutatingWebhookConfiguration:
		if key.Name == internalv1alpha1.HoldConfiguration {
			return err
		}
	default:
		if err != nil || object.GetLabels()[internalv1alpha1.LabelPolicy] != "" {
			return err
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// read returns what is installed.
func (s *server) read(t *testing.T, set *internalv1alpha1.NamespaceInitializerSet) *Result {
	t.Helper()
	installed, err := verify.Read(t.Context(), s)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(installed.ReadMutating(t.Context(), s)).To(Succeed())
	return &Result{Installed: installed, set: set}
}

func webhookConfiguration(name string) *admissionv1.MutatingWebhookConfiguration {
	target := admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Name: "nslifecycle-webhook"}}
	return &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "configuration-uid"},
		Webhooks: []admissionv1.MutatingWebhook{
			{Name: "inject.nslifecycle.dev", FailurePolicy: ptr.To(admissionv1.Fail), ClientConfig: target},
		},
	}
}

// fromManifests returns the gate and the guard, as in config/admission, and more objects.
func fromManifests(more ...client.Object) []client.Object {
	return append([]client.Object{
		policytest.ValidatingPolicy("prefix-gate", internalv1alpha1.PolicyGate),
		policytest.ValidatingBinding("gate", internalv1alpha1.PolicyGate, "prefix-gate"),
		policytest.ValidatingBinding("gate-resources", internalv1alpha1.PolicyGate, "prefix-gate"),
		policytest.ValidatingPolicy("prefix-guard", internalv1alpha1.PolicyGuard),
		policytest.ValidatingBinding("guard", internalv1alpha1.PolicyGuard, "prefix-guard"),
	}, more...)
}

// validatingWrites are the writes of the policies in config/validating.
var validatingWrites = []string{
	"apply policy nslifecycle-waiting-subjects", "apply binding nslifecycle-waiting-subjects",
	"apply policy nslifecycle-waiting-subjects-resources-named-namespaces",
	"apply binding nslifecycle-waiting-subjects-resources-named-namespaces",
	"apply policy nslifecycle-initializer-subjects", "apply binding nslifecycle-initializer-subjects",
	"apply policy nslifecycle-templates", "apply binding nslifecycle-templates",
}

// mutatingWrites are the writes of those in config/mutating.
var mutatingWrites = []string{
	"apply policy nslifecycle-complete", "apply binding nslifecycle-complete",
	"apply policy nslifecycle-require-set", "apply binding nslifecycle-require-set",
	"apply policy nslifecycle-inject", "apply binding nslifecycle-inject",
}

const updateWebhooks = "update MutatingWebhookConfiguration nslifecycle-inject"

func concat(lists ...[]string) (all []string) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// TestInstall proves the order of the writes.
func TestInstall(t *testing.T) {
	hold := webhookConfiguration(internalv1alpha1.HoldConfiguration)
	inject := webhookConfiguration(internalv1alpha1.InjectConfiguration)
	for name, test := range map[string]struct {
		objects        []client.Object
		servesMutating bool
		// writeError, failing and readError are those of the server.
		writeError, readError error
		failing               string
		discoveryError        error

		wantWritten  []string
		wantReadable int
		// wantWebhooks reports whether the component is installed, wantUID the UID of the webhooks that inject.
		wantWebhooks bool
		wantUID      string
		wantMessage  string
		// wantError is the error of what injects, wantOther another one.
		wantError, wantOther error
	}{
		"policies":              {objects: fromManifests(), servesMutating: true, wantWritten: concat(validatingWrites, mutatingWrites), wantReadable: 2},
		"policies and webhooks": {objects: fromManifests(hold, inject), servesMutating: true, wantWritten: concat(validatingWrites, []string{updateWebhooks}, mutatingWrites), wantReadable: 3, wantWebhooks: true},
		"webhooks":              {objects: fromManifests(hold, inject), wantWritten: concat(validatingWrites, []string{updateWebhooks}), wantReadable: 1, wantWebhooks: true, wantUID: "configuration-uid"},
		"only hold webhooks":    {objects: fromManifests(hold), servesMutating: true, wantWritten: concat(validatingWrites, mutatingWrites), wantReadable: 2, wantWebhooks: true},
		"webhooks that may not be read": {
			objects: fromManifests(hold, inject), servesMutating: true, readError: errForbidden,
			wantWritten: concat(validatingWrites, mutatingWrites), wantReadable: 2,
		},
		"webhooks that cannot be read": {
			objects: fromManifests(hold, inject), servesMutating: true, readError: errOutage, wantWritten: validatingWrites, wantError: errOutage,
		},
		"an administrator removes the policies": {objects: policytest.Without(fromManifests(hold, inject), "gate"), servesMutating: true},
		"nothing is installed":                  {servesMutating: true},
		"not authorized": {
			objects: fromManifests(hold), servesMutating: true, writeError: errForbidden, wantMessage: messageNotApplied,
		},
		"not authorized to apply mutating policies": {
			objects: fromManifests(), servesMutating: true, writeError: errForbidden, failing: "nslifecycle-complete",
			wantWritten: concat(validatingWrites, mutatingWrites[2:]), wantReadable: 2,
		},
		"a mutating policy cannot be applied": {
			objects: fromManifests(hold), servesMutating: true, writeError: errOutage, failing: "nslifecycle-complete",
			wantWritten: concat(validatingWrites, mutatingWrites[2:5]), wantReadable: 2, wantWebhooks: true, wantError: errOutage,
		},
		"a policy for templates cannot be applied": {
			objects: fromManifests(), servesMutating: true, writeError: errOutage, failing: "nslifecycle-templates",
			wantWritten: concat(validatingWrites[:6], mutatingWrites), wantReadable: 2, wantOther: errOutage,
		},
		"webhooks cannot be updated": {
			objects: fromManifests(inject), writeError: errOutage, failing: updateWebhooks,
			wantWritten: validatingWrites, wantReadable: 1, wantWebhooks: true, wantError: errOutage,
		},
		"discovery fails": {objects: fromManifests(hold), discoveryError: errOutage, wantWritten: validatingWrites, wantError: errOutage},
	} {
		t.Run(name, func(t *testing.T) {
			g, ctx := NewWithT(t), t.Context()
			var objects []client.Object
			for _, object := range test.objects {
				objects = append(objects, object.DeepCopyObject().(client.Object))
			}
			api := newServer(test.servesMutating, objects...)
			api.writeError, api.failing, api.readError = test.writeError, test.failing, test.readError
			if test.discoveryError != nil {
				api.discovery.AddReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, test.discoveryError
				})
			}
			result, err := api.installer().Install(ctx, policytest.Set("a.corp.com"))
			match := func(err, want error) {
				if want == nil {
					g.Expect(err).NotTo(HaveOccurred())
				} else {
					g.Expect(err).To(MatchError(want))
				}
			}
			match(err, test.wantError)
			match(result.Err, test.wantOther)
			g.Expect(api.written).To(Equal(test.wantWritten))
			g.Expect(result.Readable).To(HaveLen(test.wantReadable))
			g.Expect(result.HasWebhooks).To(Equal(test.wantWebhooks))
			g.Expect(string(result.Webhooks)).To(Equal(test.wantUID))
			g.Expect(result.Unauthorized).To(Equal(test.wantMessage))
			if err != nil || result.Err != nil || test.writeError != nil {
				return
			}
			g.Expect(result.ServesMutating).To(Equal(test.servesMutating))
			for _, policy := range policies.Where(func(p policies.Policy) bool { return p.FailsFor != nil }) {
				for _, installed := range result.Of(policy) {
					g.Expect(installed.Fails).To(BeFalse(), policy.Label)
					g.Expect(installed.GetOwnerReferences()).To(ConsistOf(HaveField("Name", "prefix-gate")))
				}
			}
			// What has not changed is not written again.
			api.written = nil
			_, err = api.installer().Install(ctx, policytest.Set("a.corp.com"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(api.written).To(BeEmpty())
		})
	}
}

func TestInstallCannotRead(t *testing.T) {
	api := policytest.NewClient(interceptor.Funcs{List: policytest.FailingList})
	_, err := (&Installer{Client: api}).Install(t.Context(), policytest.Set())
	NewWithT(t).Expect(err).To(MatchError(errOutage))
}

// A policy without its label is not in the cache.
func TestInstallPreservesFailurePolicyWithoutLabel(t *testing.T) {
	g := NewWithT(t)
	unlabeled := policytest.ValidatingPolicy("nslifecycle-templates", "")
	unlabeled.Labels, unlabeled.Spec.FailurePolicy = nil, ptr.To(admissionv1.Fail)
	installer := newServer(true, append(policytest.Without(policytest.Default(""), unlabeled.Name), unlabeled)...).installer()
	result, err := installer.Install(t.Context(), policytest.Set())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Err).NotTo(HaveOccurred())
	g.Expect(result.Of(policies.Named(internalv1alpha1.PolicyTemplates))).To(ConsistOf(HaveField("Fails", true)))
}

func TestInstallBindsPolicyOfAdministrator(t *testing.T) {
	for name, test := range map[string]struct {
		age           time.Duration
		failurePolicy *admissionv1.FailurePolicyType
		isMissing     bool
		want          bool
	}{
		"an API server may not recognize the parameter kind": {age: recognizedAfter - time.Second},
		"every API server recognizes the parameter kind":     {age: recognizedAfter, want: true},
		"a policy that rejects nothing":                      {failurePolicy: ptr.To(admissionv1.Ignore), want: true},
		"no policy":                                          {age: time.Hour, isMissing: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, ctx := NewWithT(t), t.Context()
			objects := policytest.Without(policytest.Default(""), "nslifecycle-inject", "inject-binding")
			if !test.isMissing {
				inject := policytest.MutatingPolicy("nslifecycle-inject", internalv1alpha1.PolicyInject)
				inject.Spec.FailurePolicy = test.failurePolicy
				objects = append(objects, inject)
			}
			api := newServer(true, objects...)
			api.writeError, api.failing = errForbidden, "policy"
			set := policytest.Set()
			set.CreationTimestamp = metav1.NewTime(now.Add(-test.age))
			_, err := api.installer().Install(ctx, set)
			g.Expect(err).NotTo(HaveOccurred())
			binding := &admissionv1.MutatingAdmissionPolicyBinding{}
			err = api.Get(ctx, client.ObjectKey{Name: "nslifecycle-inject"}, binding)
			g.Expect(err == nil).To(Equal(test.want), "%v", err)
			if test.want {
				g.Expect(binding.OwnerReferences).To(ConsistOf(HaveField("UID", BeEquivalentTo("nslifecycle-inject-uid"))))
			}
		})
	}
}

func TestConfine(t *testing.T) {
	confined := func() *internalv1alpha1.NamespaceInitializerSet {
		set := policytest.Set("a.corp.com")
		set.Initializers[0].Confinement = v1alpha1.ConfinementInitializingNamespaces
		set.Initializers[0].Subjects = []v1alpha1.Subject{{Kind: v1alpha1.SubjectServiceAccount, Namespace: "corp", Name: "bot"}}
		return set
	}
	installed := func(change func(*admissionv1.ValidatingAdmissionPolicy)) []client.Object {
		policy, binding := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
		for i, object := range policies.ComputeConfined(confined().Initializers, "").Render() {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, []any{policy, binding}[i]); err != nil {
				t.Fatal(err)
			}
		}
		gate := policytest.ValidatingPolicy("nslifecycle-gate", internalv1alpha1.PolicyGate)
		owner := []metav1.OwnerReference{{
			APIVersion: "admissionregistration.k8s.io/v1", Kind: policies.ValidatingKind, Name: gate.Name, UID: gate.UID,
		}}
		policy.OwnerReferences, binding.OwnerReferences = owner, owner
		change(policy)
		return append(policytest.Default(admissionv1.Fail), policy, binding)
	}
	unchanged := func(*admissionv1.ValidatingAdmissionPolicy) {}
	forbidden := apierrors.NewForbidden(admissionv1.Resource("validatingadmissionpolicies"), policies.ConfinedName, nil)
	tests := map[string]struct {
		objects     []client.Object
		set         *internalv1alpha1.NamespaceInitializerSet
		err         error
		wantWritten []string
		want        string
	}{
		"nothing to confine": {objects: policytest.Default(admissionv1.Fail), set: policytest.Set("a.corp.com")},
		"not installed": {
			objects: policytest.Default(admissionv1.Fail), set: confined(),
			wantWritten: []string{"apply policy nslifecycle-confined-initializers", "apply binding nslifecycle-confined-initializers"},
		},
		"installed": {objects: installed(unchanged), set: confined()},
		"changed": {
			objects: installed(func(policy *admissionv1.ValidatingAdmissionPolicy) {
				policy.Spec.FailurePolicy = new(admissionv1.Ignore)
			}),
			set: confined(), wantWritten: []string{"patch policy nslifecycle-confined-initializers"},
		},
		"with an additional match condition": {
			objects: installed(func(policy *admissionv1.ValidatingAdmissionPolicy) {
				policy.Spec.MatchConditions = append(policy.Spec.MatchConditions, admissionv1.MatchCondition{Name: "never", Expression: "false"})
			}),
			set: confined(), wantWritten: []string{"patch policy nslifecycle-confined-initializers"},
		},
		"the gate policy was recreated": {
			objects: installed(func(policy *admissionv1.ValidatingAdmissionPolicy) { policy.OwnerReferences = nil }),
			set:     confined(), wantWritten: []string{"patch policy nslifecycle-confined-initializers"},
		},
		"while the policies are removed": {
			objects: policytest.Without(policytest.Default(admissionv1.Fail), "nslifecycle-gate"), set: confined(),
		},
		"no longer confined": {
			objects: installed(unchanged), set: policytest.Set("a.corp.com"), wantWritten: []string{"delete binding nslifecycle-confined-initializers", "delete policy nslifecycle-confined-initializers"},
		},
		"not authorized to apply": {
			objects: policytest.Default(admissionv1.Fail), set: confined(), err: forbidden, want: messageNotConfined(1),
		},
		"not authorized to delete": {
			objects: installed(unchanged), set: policytest.Set("a.corp.com"), err: forbidden, want: messageNotConfined(0),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			api := newServer(false, test.objects...)
			api.writeError = test.err
			result := api.read(t, test.set)
			err := api.installer().confine(t.Context(), result)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.Unauthorized).To(Equal(test.want))
			g.Expect(api.written).To(Equal(test.wantWritten))
		})
	}
}

func TestSetFail(t *testing.T) {
	installed := map[string]string{
		"nslifecycle-templates":                  internalv1alpha1.PolicyTemplates,
		"nslifecycle-waiting-subjects":           internalv1alpha1.PolicyWaitingSubjects,
		"nslifecycle-waiting-subjects-resources": internalv1alpha1.PolicyWaitingSubjects,
		"nslifecycle-initializer-subjects":       internalv1alpha1.PolicyInitializerSubjects,
		"nslifecycle-gate":                       internalv1alpha1.PolicyGate,
	}
	const inject = "nslifecycle-inject"
	templates := func(set *internalv1alpha1.NamespaceInitializerSet) {
		set.Templates = []internalv1alpha1.EffectiveTemplate{{Name: "team"}}
	}
	waiting := []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "ops@corp.com"}}
	for name, test := range map[string]struct {
		age           time.Duration
		set           func(*internalv1alpha1.NamespaceInitializerSet)
		isUnconfirmed bool
		retryAfter    time.Duration
		writeError    error
		want          verify.Status
		wantError     error
		wantFail      []string
	}{
		"neither templates nor subjects": {age: recognizedAfter, wantFail: []string{inject}},
		"not confirmed":                  {age: recognizedAfter, isUnconfirmed: true},
		"the set is too young":           {age: recognizedAfter - 5*time.Second, set: templates, want: verify.Status{RetryAfter: 5 * time.Second}},
		"the earlier of two retries":     {age: recognizedAfter - 5*time.Second, retryAfter: time.Second, want: verify.Status{RetryAfter: time.Second}},
		"the later of two retries":       {age: recognizedAfter - 5*time.Second, retryAfter: time.Minute, want: verify.Status{RetryAfter: 5 * time.Second}},
		"a template":                     {age: recognizedAfter, set: templates, wantFail: []string{inject, "nslifecycle-templates"}},
		"a waiting subject": {
			age: recognizedAfter, set: func(set *internalv1alpha1.NamespaceInitializerSet) { set.WaitingSubjects = waiting },
			wantFail: []string{
				inject, "nslifecycle-initializer-subjects", "nslifecycle-waiting-subjects", "nslifecycle-waiting-subjects-resources",
			},
		},
		"the subject of an initializer": {
			age: recognizedAfter, set: func(set *internalv1alpha1.NamespaceInitializerSet) { set.Initializers[1].Subjects = waiting },
			wantFail: []string{inject, "nslifecycle-initializer-subjects"},
		},
		"not authorized": {
			age: recognizedAfter, set: templates, writeError: errForbidden,
			want: verify.Status{
				Message:    messageFailurePolicyForbidden(inject) + messageFailurePolicyForbidden("nslifecycle-templates"),
				RetryAfter: verify.UnconfirmedRetryInterval,
			},
		},
		"an outage": {age: recognizedAfter, writeError: errOutage, wantError: errOutage},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objects := []client.Object{policytest.MutatingPolicy(inject, internalv1alpha1.PolicyInject)}
			for name, label := range installed {
				policy := policytest.ValidatingPolicy(name, label)
				policy.Spec.FailurePolicy = ptr.To(admissionv1.Ignore)
				objects = append(objects, policy)
			}
			api := newServer(true, objects...)
			api.writeError = test.writeError
			set := policytest.Set("rbac.corp.com", "quota.corp.com")
			if test.set != nil {
				test.set(set)
			}
			set.CreationTimestamp = metav1.NewTime(now.Add(-test.age))
			status := verify.Status{MayFail: !test.isUnconfirmed, RetryAfter: test.retryAfter}
			err := api.installer().SetFail(t.Context(), api.read(t, set), &status)
			if test.wantError == nil {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(test.wantError))
			}
			test.want.MayFail = !test.isUnconfirmed
			g.Expect(status).To(Equal(test.want))
			var failing []string
			for _, policy := range policies.Where(func(policies.Policy) bool { return true }) {
				for _, found := range api.read(t, set).Of(policy) {
					if found.Fails {
						failing = append(failing, found.GetName())
					}
				}
			}
			g.Expect(failing).To(ConsistOf(test.wantFail))
		})
	}
}
