// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// TestCreationTimestampOfTemplateFile verifies that a template from a file is as old as the template in the cluster.
func TestCreationTimestampOfTemplateFile(t *testing.T) {
	created := metav1.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	existing := &v1alpha1.NamespaceTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NamespaceTemplate"},
		ObjectMeta: metav1.ObjectMeta{Name: "team", CreationTimestamp: created},
	}
	invalid := existing.DeepCopy()
	invalid.Spec.Objects = []v1alpha1.TemplateObject{{Name: "settings", IncludeWhen: "("}}
	notFound := apierrors.NewNotFound(templateResource.GroupResource(), "team").ErrStatus
	notFound.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	for name, test := range map[string]struct {
		status   int
		response any
		isNew    bool
	}{
		"existing template":         {status: http.StatusOK, response: existing},
		"invalid existing template": {status: http.StatusOK, response: invalid},
		"new template":              {status: http.StatusNotFound, response: notFound, isNew: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.status)
				_ = json.NewEncoder(w).Encode(test.response)
			}))
			t.Cleanup(server.Close)
			t.Setenv("KUBECONFIG", "/dev/null")
			session := newSession(genericiooptions.NewTestIOStreamsDiscard())
			g.Expect(session.flagSet.Set("server", server.URL)).To(Succeed())
			options := &templateDiffOptions{templateSource: templateSource{session: session}}
			_, got, err := options.current(t.Context(), "team")
			g.Expect(err).NotTo(HaveOccurred())
			want := created.Time
			if test.isNew {
				want = time.Now()
			}
			g.Expect(got.Time).To(BeTemporally("~", want, time.Minute))
		})
	}
}
