// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
	"github.com/nslifecycle/nslifecycle/internal/template/permissions"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// immediate is longer than a request that is not held.
const immediate = 5 * time.Second

var _ = Describe("The authorization webhook", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx context.Context) { enable(ctx) })

	It("holds a request until the user has the permissions", func(ctx context.Context) {
		Expect(expectHeld(ctx, requester, createAs(ctx, requester), finish)).To(Succeed())
	})

	It("allows only what the template grants", func(ctx context.Context) {
		Expect(expectHeld(ctx, requester, func(namespace string) result {
			begin := time.Now()
			err := requester.Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "quota"}})
			return result{err, time.Since(begin)}
		}, finish)).To(Satisfy(apierrors.IsForbidden))
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
		By("answering users who may impersonate the requester like the requester")
		administrator := cluster.Impersonate("user1@corp.example.com")
		Expect(expectHeld(ctx, requester, createAs(ctx, administrator), finish)).To(Succeed())
	})

	It("has no opinion about users with more groups than a review may contain", func(ctx context.Context) {
		namespace := createInitializing(ctx, requester)
		config := rest.CopyConfig(cluster.Admin.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: "user1@corp.example.com"}
		for i := range 400 {
			config.Impersonate.Groups = append(config.Impersonate.Groups, fmt.Sprintf("%d-%s", i, strings.Repeat("g", 200)))
		}
		got := create(ctx, framework.NewUser(config), namespace)
		Expect(apierrors.IsForbidden(got.Err)).To(BeTrue(), "%v", got.Err)
		Expect(got.Duration).To(BeNumerically("<", immediate))
	})

	It("does not allow a held request in a namespace that another user creates with the same name", func(ctx context.Context) {
		var namespace string
		Expect(expectHeld(ctx, requester, createAs(ctx, requester), func(ctx context.Context, name string) {
			namespace = name
			cluster.Admin.Deletes(ctx, wrappers.MakeNamespace(name).Obj())
		})).To(Satisfy(apierrors.IsForbidden))
		framework.ExpectDeleted(ctx, cluster.Admin, wrappers.MakeNamespace(namespace).Obj())
		other.Creates(ctx, makeInitializing(namespace))
		Expect(create(ctx, requester, namespace).Err).To(Satisfy(apierrors.IsForbidden))
		finish(ctx, namespace)
		Expect(create(ctx, requester, namespace).Err).To(Satisfy(apierrors.IsForbidden))
		Expect(create(ctx, other, namespace).Err).NotTo(HaveOccurred())
	})

	It("names the pending initializers if the initialization exceeds the time limit", Label("long"), func(ctx context.Context) {
		namespace := createInitializing(ctx, requester)
		got := create(ctx, requester, namespace)
		Expect(apierrors.IsForbidden(got.Err)).To(BeTrue(), "%v", got.Err)
		Expect(got.Err).To(MatchError(ContainSubstring("pending: " + framework.Absent)))
		Expect(got.Duration).To(BeNumerically("~", options.Duration, immediate))
	})

	It("does not allow a request after a failed initialization", func(ctx context.Context) {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`,
			v1alpha1.AnnotationInitializationResult, `{"status":"Failure","message":"no room"}`)
		Expect(expectHeld(ctx, requester, createAs(ctx, requester), func(ctx context.Context, namespace string) {
			Expect(cluster.Initializer.Patch(ctx, wrappers.MakeNamespace(namespace).Obj(), framework.MergePatch(patch))).
				To(Succeed())
		})).To(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("no room"))))
	})

	It("holds at most as many requests of a user as the limit, and delays no other requests", func(ctx context.Context) {
		const requests = 200
		namespace := createInitializing(ctx, requester)
		clientset := requester.Clientset()
		var lock sync.Mutex
		results := map[metav1.StatusReason]int{}
		var all sync.WaitGroup
		for i := range requests {
			all.Go(func() {
				_, err := clientset.CoreV1().ConfigMaps(namespace).Get(ctx, fmt.Sprint(i), metav1.GetOptions{})
				lock.Lock()
				defer lock.Unlock()
				results[apierrors.ReasonForError(err)]++
			})
		}
		By("holding the requests of another user")
		Expect(expectHeld(ctx, other, createAs(ctx, other), finish)).To(Succeed())
		begin := time.Now()
		all.Wait()
		AddReportEntry(fmt.Sprintf("%v after %s", results, time.Since(begin)))
		Expect(results).To(HaveKeyWithValue(metav1.StatusReasonForbidden, requests))
	})

	// The operator waits for the permissions of RoleBindings before it completes the initialization.
	It("does not hold reviews of the operator about the requester", func(ctx context.Context) {
		namespace := createInitializing(ctx, requester)
		create := func(extra map[string]authorizationv1.ExtraValue) time.Duration {
			begin := time.Now()
			review := &authorizationv1.SubjectAccessReview{Spec: permissions.Review(
				rbacv1.Subject{Kind: rbacv1.UserKind, Name: "user1@corp.example.com"},
				&authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "configmaps"})}
			if extra != nil {
				review.Spec.Extra = extra
			}
			cluster.Admin.Creates(ctx, review)
			Expect(review.Status.Allowed).To(BeFalse())
			return time.Since(begin)
		}
		Expect(create(nil)).To(BeNumerically("<", immediate))
		held := make(chan time.Duration, 1)
		go func() {
			defer GinkgoRecover()
			held <- create(map[string]authorizationv1.ExtraValue{"other": {"true"}})
		}()
		Consistently(held).WithContext(ctx).WithTimeout(immediate).ShouldNot(Receive())
		cluster.Admin.Deletes(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		Eventually(held).WithContext(ctx).Should(Receive())
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

var _ = Describe("While the authorization webhook does not work", Ordered, ContinueOnFailure, func() {
	// quick shortens the timeout.
	quick := strings.NewReplacer("timeout: 15s", "timeout: 2s")
	// serve makes the API server ask another server.
	serve := func(ctx context.Context, listener net.Listener) {
		GinkgoHelper()
		DeferCleanup(func() { _ = listener.Close() })
		Expect(cluster.EnableAuthorization(ctx, files, "https://"+listener.Addr().String(), quick)).To(Succeed())
	}

	DescribeTable("RBAC decides, and what it does not allow fails", func(ctx context.Context, run func(net.Listener)) {
		namespace := createInitializing(ctx, requester)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		serve(ctx, listener)
		run(listener)
		got := create(ctx, requester, namespace)
		Expect(apierrors.IsInternalError(got.Err)).To(BeTrue(), "%v", got.Err)
		AddReportEntry(fmt.Sprintf("%s after %s", apierrors.ReasonForError(got.Err), got.Duration))
		Expect(got.Duration).To(BeNumerically("<", 10*time.Second))
		By("allowing what RBAC allows")
		begin := time.Now()
		Expect(requester.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{})).To(Succeed())
		Expect(time.Since(begin)).To(BeNumerically("<", immediate))
		By("answering requests without a namespace, and those of ServiceAccounts, as before")
		Expect(requester.List(ctx, &corev1.NodeList{})).To(Satisfy(apierrors.IsForbidden))
		account := cluster.Impersonate("system:serviceaccount:default:default")
		Expect(create(ctx, account, namespace).Err).To(Satisfy(apierrors.IsForbidden))
	},
		Entry("if nothing listens", func(listener net.Listener) { Expect(listener.Close()).To(Succeed()) }),
		Entry("if it never responds", func(listener net.Listener) {
			go func() {
				for {
					connection, err := listener.Accept()
					if err != nil {
						return
					}
					defer connection.Close()
				}
			}()
		}),
		Entry("if a process without the certificate allows everything", func(listener net.Listener) {
			lie(listener, true)
		}),
		Entry("if a process without TLS allows everything", func(listener net.Listener) {
			lie(listener, false)
		}),
	)

	It("the token can be withdrawn", func(ctx context.Context) {
		enable(ctx)
		secret := &corev1.Secret{}
		secret.Namespace, secret.Name = controlplane.SystemNamespace, webhooks.SecretName
		patch := framework.MergePatch(`{"data":{"` + webhooks.TokenKey + `":null}}`)
		Expect(cluster.Admin.Patch(ctx, secret, patch)).To(Succeed())
		namespace := createInitializing(ctx, requester)
		Eventually(func() error { return create(ctx, requester, namespace).Err }).WithContext(ctx).
			Should(Satisfy(apierrors.IsInternalError))
		By("issuing another one")
		enable(ctx)
		Expect(expectHeld(ctx, requester, createAs(ctx, requester), finish)).To(Succeed())
	})
})

// lie serves an authorization webhook that allows everything.
func lie(listener net.Listener, hasTLS bool) {
	GinkgoHelper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &authorizationv1.SubjectAccessReview{}
		_ = json.NewDecoder(r.Body).Decode(review)
		review.Status.Allowed = true
		_ = json.NewEncoder(w).Encode(review)
	}))
	Expect(server.Listener.Close()).To(Succeed())
	server.Listener = listener
	if hasTLS {
		server.StartTLS()
	} else {
		server.Start()
	}
	DeferCleanup(server.Close)
}

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
