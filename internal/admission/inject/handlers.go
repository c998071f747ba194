// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"context"
	"fmt"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

// Paths of the webhooks.
const (
	// pathInject is the path of the webhook for new namespaces, followed by the generation of the effective set.
	pathInject = "/inject/"
	// pathComplete is the path of the webhook for updates by users who may initialize the namespace, and pathRestore the
	// path for updates by other users.
	pathComplete = "/complete"
	pathRestore  = "/restore"
	// pathRestoreLocked is the path of the webhook for updates that omit keys that a template locks. It decodes all keys,
	// whose number therefore cannot prevent an answer of the webhooks above.
	pathRestoreLocked = "/restore-locked"
	// pathRestoreConditions is the path of the webhook for updates of the status by users that may not initialize the
	// namespace. It has fields of its own, so that the number of conditions cannot prevent an answer of the others.
	pathRestoreConditions = "/restore-conditions"
	// pathCompleteAfterPolicy replaces pathComplete while an API server can enforce the policy complete, which then runs
	// before the webhook. The webhook at pathComplete would restore the list that the policy has removed.
	pathCompleteAfterPolicy = "/complete-after-policy"
)

// setTimeout is how long a creation waits for the generation that its API server requests. The informer receives it
// within milliseconds.
const setTimeout = 2 * time.Second

// Register adds the webhooks to a server. They read only from the cache, and answer within microseconds, so the number
// of concurrent requests has no bound of its own.
func Register(ctx context.Context, informers cache.Informers, server *webhooks.Server) error {
	sets := newSets()
	if err := sets.watch(ctx, informers); err != nil {
		return fmt.Errorf("failed to set up the webhooks that inject initializers: %w", err)
	}
	for _, webhook := range sets.webhooks() {
		server.Register(webhook)
	}
	return nil
}

func (s *sets) webhooks() []webhooks.Webhook {
	return []webhooks.Webhook{
		{Path: pathInject, Fields: createdFields, Handle: s.inject},
		{Path: pathComplete, Fields: updatedFields, Handle: update(completed)},
		{Path: pathCompleteAfterPolicy, Fields: updatedFields, Handle: update(completeAfterPolicy)},
		{Path: pathRestore, Fields: updatedFields, Handle: update(restored)},
		{Path: pathRestoreLocked, Fields: lockedFields, Handle: update(restoreLocked)},
		{Path: pathRestoreConditions, Fields: conditionFields, Handle: update(restoreConditions)},
	}
}

const fieldMetadata = "metadata"

// The parts of a review that the webhooks decode.
var (
	// Selectors can refer to every label. The values of annotations that are not parameters are not needed.
	createdFields = webhooks.Fields{"object": {
		fieldMetadata: {
			"name": nil, "labels": nil,
			"annotations": {v1alpha1.Prefix: webhooks.KeyOnly, v1alpha1.PrefixParameter: nil},
		},
		"spec": {"finalizers": nil},
	}}
	updatedFields   = fieldsOfBoth(stateFields())
	lockedFields    = fieldsOfBoth(webhooks.Fields{fieldMetadata: {"labels": nil, "annotations": nil}})
	conditionFields = fieldsOfBoth(webhooks.Fields{
		fieldMetadata: stateFields()[fieldMetadata], "status": {"conditions": nil},
	})
)

func fieldsOfBoth(fields webhooks.Fields) webhooks.Fields {
	return webhooks.Fields{"object": fields, "oldObject": fields}
}

func stateFields() webhooks.Fields {
	annotations := webhooks.Fields{}
	for _, key := range initialization.StateAnnotations {
		annotations[key] = nil
	}
	return webhooks.Fields{fieldMetadata: {
		"labels": {v1alpha1.LabelInitializing: nil}, "annotations": annotations, "deletionTimestamp": nil,
	}}
}

// inject answers requests that create namespaces.
func (s *sets) inject(ctx context.Context, request *webhooks.Request) (*admissionv1.AdmissionResponse, error) {
	generation, err := strconv.ParseInt(request.Subpath, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("failed to parse the generation of NamespaceInitializerSet %q: %w",
			internalv1alpha1.EffectiveSetName, err)
	}
	set, err := s.wait(ctx, generation)
	if err != nil {
		return nil, err
	}
	return respond(request.Object, func(namespace *corev1.Namespace) { Inject(namespace, set, request.Username) })
}

// The match conditions of the webhooks check whether the user may initialize the namespace.
func completed(before, after *corev1.Namespace) { Complete(before, after, true) }
func restored(before, after *corev1.Namespace)  { Complete(before, after, false) }

// update returns the handler of updates.
func update(change func(before, after *corev1.Namespace)) webhooks.HandlerFunc {
	return func(_ context.Context, request *webhooks.Request) (*admissionv1.AdmissionResponse, error) {
		old, _, err := decode(request.OldObject)
		if err != nil {
			return nil, err
		}
		return respond(request.Object, func(namespace *corev1.Namespace) { change(old, namespace) })
	}
}

// decode returns the parts of a Namespace that Fields name.
func decode(object []byte) (*corev1.Namespace, parents, error) {
	var decoded struct {
		Metadata struct {
			Name              string            `json:"name"`
			Labels            map[string]string `json:"labels"`
			Annotations       map[string]string `json:"annotations"`
			DeletionTimestamp *metav1.Time      `json:"deletionTimestamp"`
		} `json:"metadata"`
		Spec   *corev1.NamespaceSpec   `json:"spec"`
		Status *corev1.NamespaceStatus `json:"status"`
	}
	if err := json.Unmarshal(object, &decoded); err != nil {
		return nil, parents{}, fmt.Errorf("failed to decode a Namespace: %w", err)
	}
	namespace := &corev1.Namespace{
		Spec:   ptr.Deref(decoded.Spec, corev1.NamespaceSpec{}),
		Status: ptr.Deref(decoded.Status, corev1.NamespaceStatus{}),
	}
	namespace.Name, namespace.Labels = decoded.Metadata.Name, decoded.Metadata.Labels
	namespace.Annotations = decoded.Metadata.Annotations
	namespace.DeletionTimestamp = decoded.Metadata.DeletionTimestamp
	return namespace, parents{spec: decoded.Spec != nil, status: decoded.Status != nil}, nil
}

// respond applies a function to a Namespace, and returns a response whose patch contains the changes.
func respond(object []byte, change func(*corev1.Namespace)) (*admissionv1.AdmissionResponse, error) {
	before, has, err := decode(object)
	if err != nil {
		return nil, err
	}
	after := before.DeepCopy()
	change(after)
	response := &admissionv1.AdmissionResponse{Allowed: true}
	operations := computePatch(before, after, has)
	if len(operations) == 0 {
		return response, nil
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("failed to encode a patch: %w", err)
	}
	response.Patch, response.PatchType = patch, ptr.To(admissionv1.PatchTypeJSONPatch)
	return response, nil
}
