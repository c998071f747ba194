// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/webhooks"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// immediate is longer than a request that is not held.
const immediate = 2 * time.Second

var _ = Describe("The authorization webhook", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx context.Context) { enable(ctx) })

	It("holds a request until the user has the permissions", func(ctx context.Context) {
		namespace := createInitializing(ctx, requester)
		held := start(ctx, func() result { return create(ctx, requester, namespace) })
		finish(ctx, namespace)
		Expect(expectResult(ctx, held)).To(Succeed())
	})

	It("allows only what the template grants", func(ctx context.Context) {
		namespace := createInitializing(ctx, requester)
		held := start(ctx, func() result {
			begin := time.Now()
			err := requester.Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "quota"}})
			return result{err, time.Since(begin)}
		})
		finish(ctx, namespace)
		Expect(expectResult(ctx, held)).To(Satisfy(apierrors.IsForbidden))
	})

	It("does not hold requests for the namespaces of another user", func(ctx context.Context) {
		namespace := createInitializing(ctx, other)
		got := create(ctx, requester, namespace)
		Expect(apierrors.IsForbidden(got.Err)).To(BeTrue(), "%v", got.Err)
		Expect(got.Duration).To(BeNumerically("<", immediate))
		finish(ctx, namespace)
		Expect(create(ctx, requester, namespace).Err).To(Satisfy(apierrors.IsForbidden))
	})

	It("does not hold requests for namespaces that are initialized or do not exist", func(ctx context.Context) {
		initialized := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("admin")).Name
		for _, namespace := range []string{initialized, "kube-system", "absent"} {
			got := create(ctx, requester, namespace)
			Expect(apierrors.IsForbidden(got.Err)).To(BeTrue(), "%v", got.Err)
			Expect(got.Duration).To(BeNumerically("<", immediate))
		}
	})

	It("does not let a user impersonate the requester", func(ctx context.Context) {
		namespace := createInitializing(ctx, requester)
		config := rest.CopyConfig(other.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: "user1@corp.example.com"}
		got := create(ctx, framework.NewUser(config), namespace)
		Expect(apierrors.IsForbidden(got.Err)).To(BeTrue(), "%v", got.Err)
		Expect(got.Duration).To(BeNumerically("<", immediate))
	})

	It("does not allow a held request in a namespace that another user creates with the same name", func(ctx context.Context) {
		namespace := createInitializing(ctx, requester)
		held := start(ctx, func() result { return create(ctx, requester, namespace) })
		old := cluster.GetNamespace(Default, ctx, namespace)
		Expect(cluster.Admin.Delete(ctx, old)).To(Succeed())
		Expect(expectResult(ctx, held)).To(Satisfy(apierrors.IsForbidden))
		framework.ExpectDeleted(ctx, cluster.Admin, old)
		Expect(other.Create(ctx, framework.MakeInitializing(namespace).Obj())).To(Succeed())
		Expect(create(ctx, requester, namespace).Err).To(Satisfy(apierrors.IsForbidden))
		finish(ctx, namespace)
		Expect(create(ctx, requester, namespace).Err).To(Satisfy(apierrors.IsForbidden))
		Expect(create(ctx, other, namespace).Err).NotTo(HaveOccurred())
	})

	It("does not allow a request after a failed initialization", func(ctx context.Context) {
		namespace := createInitializing(ctx, requester)
		held := start(ctx, func() result { return create(ctx, requester, namespace) })
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`,
			v1alpha1.AnnotationInitializationResult, `{"status":"Failure","message":"no"}`)
		Expect(cluster.Initializer.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
			framework.MergePatch([]byte(patch)))).To(Succeed())
		Expect(expectResult(ctx, held)).To(Satisfy(apierrors.IsForbidden))
	})

	It("answers only API servers", func(ctx context.Context) {
		namespace := createInitializing(ctx, requester)
		review := accessReview(namespace)
		Expect(post(ctx, review, "")).To(Equal(http.StatusUnauthorized))
		Expect(post(ctx, review, "secret")).To(Equal(http.StatusUnauthorized))
		secret := &corev1.Secret{}
		Expect(cluster.Admin.Get(ctx, client.ObjectKey{
			Namespace: controlplane.SystemNamespace, Name: webhooks.SecretName,
		}, secret)).To(Succeed())
		finish(ctx, namespace)
		Expect(post(ctx, review, string(secret.Data[webhooks.TokenKey]))).To(Equal(http.StatusOK))
	})
})

func accessReview(namespace string) string {
	return fmt.Sprintf(`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{`+
		`"user":"user1@corp.example.com","resourceAttributes":{"namespace":%q,"verb":"create","resource":"configmaps"}}}`, namespace)
}

// post sends a review to the webhook with a token, and returns the status.
func post(ctx context.Context, review, token string) int {
	GinkgoHelper()
	insecure := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, options.URL+"/authorize", strings.NewReader(review))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := insecure.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}
