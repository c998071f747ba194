// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestDeleteVerifiesTheDeletion(t *testing.T) {
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	remaining := func(uid types.UID, finalizers ...string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: uid, Finalizers: finalizers}}
	}
	tests := map[string]struct {
		finalizers []string
		remaining  *metav1.PartialObjectMetadata
		err        error
		want       Outcome
		wantErr    bool
	}{
		"not found":          {err: apierrors.NewNotFound(configMaps.GroupResource(), "a"), want: OutcomeDeleted},
		"recreated":          {remaining: remaining("2", "example.com/a"), want: OutcomeDeleted},
		"finalizer":          {finalizers: []string{"example.com/a"}, remaining: remaining("1", "example.com/a"), want: OutcomeHeld},
		"finalizer removed":  {finalizers: []string{"example.com/a"}, remaining: remaining("1"), want: OutcomeTerminating},
		"no finalizer":       {remaining: remaining("1"), want: OutcomeTerminating},
		"unknown, finalizer": {finalizers: []string{"example.com/a"}, err: errors.New("timeout"), want: OutcomeHeld},
		"unknown":            {err: errors.New("timeout"), wantErr: true},
		"not allowed to get": {err: apierrors.NewForbidden(configMaps.GroupResource(), "a", errors.New("no")), want: OutcomeUnknown},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			api := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
			api.PrependReactor("delete", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, nil
			})
			api.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, test.remaining, test.err
			})
			got, err := (&Finder{Client: api}).Delete(t.Context(), &Orphan{
				Namespace: "deleted", Name: "a", UID: "1", Finalizers: test.finalizers, gvr: configMaps,
			})
			g.Expect(err != nil).To(Equal(test.wantErr), "%v", err)
			g.Expect(got).To(Equal(test.want))
		})
	}
}

func TestDeleteReportsDenials(t *testing.T) {
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	denied := errors.New(`admission webhook "usages.example.com" denied the request: in use`)
	tests := map[string]struct {
		err     error
		want    Outcome
		wantErr OmegaMatcher
	}{
		"the object was deleted":   {err: apierrors.NewNotFound(configMaps.GroupResource(), "a"), want: OutcomeNotFound, wantErr: BeNil()},
		"the object was recreated": {err: apierrors.NewConflict(configMaps.GroupResource(), "a", errors.New("uid")), want: OutcomeNotFound, wantErr: BeNil()},
		"a webhook denies it":      {err: apierrors.NewConflict(configMaps.GroupResource(), "a", denied), wantErr: MatchError(ContainSubstring("in use"))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			api := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
			api.PrependReactor("delete", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, test.err
			})
			got, err := (&Finder{Client: api}).Delete(t.Context(), &Orphan{Namespace: "deleted", Name: "a", gvr: configMaps})
			g.Expect(err).To(test.wantErr)
			g.Expect(got).To(Equal(test.want))
		})
	}
}
