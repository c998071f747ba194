// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/graceperiod"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework/policytest"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const systemNamespace, sourceNamespace = "nslifecycle-system", "nslifecycle-sources"

var exempt = initialization.Exempt(systemNamespace, sourceNamespace)

var (
	// now is the initial time of the fake clocks.
	now = policytest.Now

	errOutage    = policytest.ErrUnavailable
	errForbidden = policytest.ErrForbidden
	errInUse     = apierrors.NewConflict(schema.GroupResource{Resource: "namespaces"}, "x",
		errors.New(`admission webhook "usages.example.com" denied the request: in use`))
	errConflict = apierrors.NewConflict(schema.GroupResource{Resource: "namespaces"}, "x", errors.New("the object has been modified"))
	errNotFound = apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "x")
	// errRecreated is the error for a patch with the UID of an object that was deleted and created again.
	errRecreated = apierrors.NewInvalid(schema.GroupKind{Kind: "Namespace"}, "x", field.ErrorList{
		field.Invalid(field.NewPath("metadata", "uid"), "x-uid", "field is immutable"),
	})
)

// fakeServer is a fake API server with one Namespace. It records writes as text. The suites cover how a real API server
// handles them.
type fakeServer struct {
	// cached is the Namespace in the cache. live is the Namespace in the API server; the default is cached.
	cached, live *corev1.Namespace
	// configurations are those in the cache. By default, they register the initializers of the Namespace without
	// settings. liveConfigurations are those in the API server; the default is configurations.
	configurations, liveConfigurations []*wrappers.ConfigurationWrapper
	// configMaps are the content of the Namespace, leases are those of the API servers.
	configMaps []metav1.PartialObjectMetadata
	leases     []coordinationv1.Lease
	webhooks   []admissionv1.ValidatingWebhookConfiguration
	// These are the errors that requests return: getError for the cache, liveError and listError for the API server. Each
	// finalize request returns the next of finalizeErrors.
	getError, liveError, listError, patchError, statusError, deleteError error
	contentError, discoveryError, leasesError, webhooksError             error
	finalizeErrors                                                       []error
	// onFinalize is called in each finalize request.
	onFinalize func(*fakeServer)

	gracePeriods *graceperiod.Source
	writes       []string
	// result is the message in the written initialization result.
	result                  string
	discovers, webhookLists int
}

// newFakeClient returns a fake client with the given objects and interceptors.
func newFakeClient(funcs interceptor.Funcs, objects ...client.Object) client.Client {
	return policytest.NewClient(funcs, objects...)
}

// client returns a client that reads from the cache.
func (s *fakeServer) client(objects ...client.Object) client.Client {
	return newFakeClient(interceptor.Funcs{
		Get: s.get, List: s.list, SubResourcePatch: s.patchStatus, SubResourceUpdate: s.finalize, Delete: s.delete,
	}, objects...)
}

// reader returns a client that reads from the API server.
func (s *fakeServer) reader(objects ...client.Object) client.Client {
	return newFakeClient(interceptor.Funcs{Get: s.getLive, List: s.listLive}, objects...)
}

func (s *fakeServer) get(
	_ context.Context, _ client.WithWatch, _ client.ObjectKey, object client.Object, _ ...client.GetOption,
) error {
	if s.getError == nil {
		s.cached.DeepCopyInto(object.(*corev1.Namespace))
	}
	return s.getError
}

func (s *fakeServer) getLive(
	_ context.Context, _ client.WithWatch, _ client.ObjectKey, object client.Object, _ ...client.GetOption,
) error {
	if namespace := cmp.Or(s.live, s.cached); s.liveError == nil {
		namespace.DeepCopyInto(object.(*corev1.Namespace))
	}
	return s.liveError
}

func (s *fakeServer) list(
	ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption,
) error {
	switch list := list.(type) {
	case *v1alpha1.NamespaceInitializerConfigurationList:
		configurations := s.configurations
		if configurations == nil {
			configurations = []*wrappers.ConfigurationWrapper{wrappers.MakeConfiguration("c").Initializers("rbac.corp.com").
				Initializers(initialization.ParseState(s.cached).All...)}
		}
		addConfigurations(list, configurations)
	case *corev1.NamespaceList:
		list.Items = append(list.Items, *s.cached)
	case *coordinationv1.LeaseList:
		options := (&client.ListOptions{}).ApplyOptions(opts)
		if options.Namespace != metav1.NamespaceSystem ||
			options.LabelSelector.String() != "apiserver.kubernetes.io/identity=kube-apiserver" {
			return fmt.Errorf("the list options do not select the Leases of API servers: %v", options)
		}
		list.Items = s.leases
		return s.leasesError
	default:
		return c.List(ctx, list, opts...)
	}
	return nil
}

func (s *fakeServer) listLive(
	ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption,
) error {
	switch list := list.(type) {
	case *admissionv1.MutatingWebhookConfigurationList:
		s.webhookLists++
		return s.webhooksError
	case *admissionv1.ValidatingWebhookConfigurationList:
		list.Items = s.webhooks
		return s.webhooksError
	case *v1alpha1.NamespaceInitializerConfigurationList:
		if s.liveConfigurations != nil {
			addConfigurations(list, s.liveConfigurations)
			return s.listError
		}
	}
	return errors.Join(s.listError, s.list(ctx, c, list, opts...))
}

func addConfigurations(list client.ObjectList, configurations []*wrappers.ConfigurationWrapper) {
	items := &list.(*v1alpha1.NamespaceInitializerConfigurationList).Items
	for _, configuration := range configurations {
		*items = append(*items, *configuration.Obj())
	}
}

func (s *fakeServer) patchStatus(
	_ context.Context, _ client.Client, subResource string, object client.Object, patch client.Patch,
	opts ...client.SubResourcePatchOption,
) error {
	options := (&client.SubResourcePatchOptions{}).ApplyOptions(opts)
	if patch.Type() == types.MergePatchType { // The repair of the label.
		body, err := patch.Data(object)
		s.writes = append(s.writes, fmt.Sprintf("%s of %s by %s: %s", subResource, object.GetName(), options.FieldManager, body))
		return errors.Join(err, s.patchError)
	}
	if patch.Type() != types.StrategicMergePatchType || options.FieldManager != nsobject.FieldOwner {
		return fmt.Errorf("unexpected %s by %q", patch.Type(), options.FieldManager)
	}
	body, err := bodyOf[struct {
		Metadata struct {
			UID, ResourceVersion string
			Annotations          map[string]*string
		}
		Status corev1.NamespaceStatus
	}](object, patch)
	if err != nil {
		return err
	}
	words := []string{fmt.Sprintf("%s of %s: uid=%s", subResource, object.GetName(), body.Metadata.UID)}
	if body.Metadata.ResourceVersion != "" {
		words = append(words, "version="+body.Metadata.ResourceVersion)
	}
	if body.Status.Phase != "" {
		words = append(words, "phase="+string(body.Status.Phase))
	}
	for _, condition := range body.Status.Conditions {
		word := fmt.Sprintf("%s=%s/%s", condition.Type, condition.Status, condition.Reason)
		if !condition.LastTransitionTime.Time.Equal(now) {
			word += " since " + condition.LastTransitionTime.UTC().String()
		}
		words = append(words, word)
	}
	for _, key := range slices.Sorted(maps.Keys(body.Metadata.Annotations)) {
		text := ptr.Deref(body.Metadata.Annotations[key], "null")
		if key == v1alpha1.AnnotationInitializationResult {
			var result metav1.Status
			if err := json.Unmarshal([]byte(text), &result); err != nil {
				return err
			}
			text, s.result = fmt.Sprintf("%s/%s/%d", result.Status, result.Reason, result.Code), result.Message
		}
		words = append(words, strings.TrimPrefix(key, v1alpha1.Prefix)+"="+text)
	}
	s.writes = append(s.writes, strings.Join(words, " "))
	if s.statusError == nil { // Like the API server, return the updated object.
		object.SetResourceVersion("8")
		status := &object.(*corev1.Namespace).Status
		status.Phase = cmp.Or(body.Status.Phase, status.Phase)
		status.Conditions = slices.DeleteFunc(status.Conditions, func(old corev1.NamespaceCondition) bool {
			return slices.ContainsFunc(body.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == old.Type })
		})
		status.Conditions = append(status.Conditions, body.Status.Conditions...)
		s.live = object.(*corev1.Namespace).DeepCopy()
	}
	return s.statusError
}

// bodyOf decodes a patch.
func bodyOf[T any](object client.Object, patch client.Patch) (body T, err error) {
	data, err := patch.Data(object)
	if err == nil {
		err = json.Unmarshal(data, &body)
	}
	return body, err
}

func (s *fakeServer) finalize(
	_ context.Context, _ client.Client, subResource string, object client.Object, opts ...client.SubResourceUpdateOption,
) error {
	options := (&client.SubResourceUpdateOptions{}).ApplyOptions(opts)
	s.writes = append(s.writes, fmt.Sprintf("%s %s by %s: uid=%s resourceVersion=%s finalizers=%s", subResource, object.GetName(),
		options.FieldManager, object.GetUID(), object.GetResourceVersion(), object.(*corev1.Namespace).Spec.Finalizers))
	if s.onFinalize != nil {
		s.onFinalize(s)
	}
	if len(s.finalizeErrors) == 0 {
		return nil
	}
	err := s.finalizeErrors[0]
	s.finalizeErrors = s.finalizeErrors[1:]
	return err
}

func (s *fakeServer) delete(
	ctx context.Context, _ client.WithWatch, object client.Object, opts ...client.DeleteOption,
) error {
	if _, ok := ctx.Deadline(); !ok {
		return errors.New("a request that webhooks can delay has no deadline")
	}
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	s.writes = append(s.writes, fmt.Sprintf("delete %s: uid=%s resourceVersion=%s",
		object.GetName(), *options.Preconditions.UID, ptr.Deref(options.Preconditions.ResourceVersion, "")))
	return s.deleteError
}

func recorded(recorder events.EventRecorder) []string {
	var notes []string
	for channel := recorder.(*events.FakeRecorder).Events; len(channel) > 0; {
		notes = append(notes, <-channel)
	}
	return notes
}

// matchEvents matches the recorded Events in order. Each text consists of the start of an Event and
// of substrings of its note, separated by " ... ".
func matchEvents(texts ...string) gomegatypes.GomegaMatcher {
	elements := make([]any, 0, len(texts))
	for _, text := range texts {
		start, rest, _ := strings.Cut(text, " ... ")
		matcher := HavePrefix(start)
		for value := range strings.SplitSeq(rest, " ... ") {
			matcher = And(matcher, ContainSubstring(value))
		}
		elements = append(elements, matcher)
	}
	return HaveExactElements(elements...)
}

// matchError matches an error with a text; nil if the text is empty.
func matchError(text string) gomegatypes.GomegaMatcher {
	if text == "" {
		return Succeed()
	}
	return MatchError(text)
}

// terminating returns a terminating Namespace.
func terminating(change ...func(*corev1.Namespace)) *corev1.Namespace {
	namespace := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Terminating(now).Obj()
	for _, change := range change {
		change(namespace)
	}
	return namespace
}

func withFinalizers(finalizers ...corev1.FinalizerName) func(*corev1.Namespace) {
	return func(namespace *corev1.Namespace) { namespace.Spec.Finalizers = finalizers }
}
