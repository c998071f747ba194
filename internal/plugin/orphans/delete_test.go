// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

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
