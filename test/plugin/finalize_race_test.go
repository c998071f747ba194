// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// recordingProxy records a user's write requests.
type recordingProxy struct {
	// before runs once, between the plugin's last read of the state and its first write that is not a
	// dry run.
	before func()

	mutex  sync.Mutex
	writes []string
}

// newProxiedUser returns an administrator who sends all requests through a recordingProxy.
func newProxiedUser(w *recordingProxy) *user {
	GinkgoHelper()
	target, err := url.Parse(bare.Admin.Host)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(bare.Admin)
	Expect(err).NotTo(HaveOccurred())
	proxy := &httputil.ReverseProxy{
		Transport: transport, Rewrite: func(request *httputil.ProxyRequest) { request.SetURL(target) },
	}
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		defer GinkgoRecover()
		if request.Method == http.MethodPut || request.Method == http.MethodPatch || request.Method == http.MethodDelete {
			isDryRun := isDryRun(request)
			if !isDryRun && w.before != nil {
				once.Do(func() {
					defer GinkgoRecover()
					w.before()
				})
			}
			w.record(request, isDryRun)
		}
		proxy.ServeHTTP(response, request)
	}))
	DeferCleanup(server.Close)
	return newUser(&rest.Config{Host: server.URL})
}

// isDryRun reports whether a request is a dry run. A DELETE request contains the option in its
// body.
func isDryRun(request *http.Request) bool {
	GinkgoHelper()
	if request.Method != http.MethodDelete {
		return request.URL.Query().Get("dryRun") == metav1.DryRunAll
	}
	body, err := io.ReadAll(request.Body)
	Expect(err).NotTo(HaveOccurred())
	request.Body = io.NopCloser(bytes.NewReader(body))
	var options metav1.DeleteOptions
	Expect(json.Unmarshal(body, &options)).To(Succeed())
	return slices.Contains(options.DryRun, metav1.DryRunAll)
}

func (w *recordingProxy) record(request *http.Request, isDryRun bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	text := request.Method + " " + strings.TrimPrefix(request.URL.Path, "/api/v1/namespaces/")
	if isDryRun {
		text = "dry run of " + text
	}
	w.writes = append(w.writes, text)
}

// recorded returns the writes, sorted and without duplicates.
func (w *recordingProxy) recorded() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(w.writes)))
}

// The state can change between the plugin's last read and its write. The write contains the
// expected UID and resourceVersion, so the API server rejects it if they do not match.
var _ = Describe("finalize with concurrent changes", func() {
	force := func(ctx context.Context, w *recordingProxy, namespace *corev1.Namespace, flags ...string) result {
		GinkgoHelper()
		return newProxiedUser(w).run(ctx, append([]string{"finalize", namespace.Name, "--ignore-active-owner", "--no-backup",
			"--dry-run=false", "--confirm=" + namespace.Name}, flags...)...)
	}

	DescribeTable("the API server rejects the write if", func(ctx context.Context, flag, reason string,
		change func(ctx context.Context, namespace *corev1.Namespace)) {
		namespace := makeStuckNamespace(ctx)
		var before map[string]string
		w := &recordingProxy{before: func() {
			change(ctx, namespace)
			before = snapshot(ctx, namespace.Name)
		}}
		refused := force(ctx, w, namespace, flag, "--orphan")
		Expect(before).NotTo(BeEmpty(), "no write was sent")
		Expect(refused.code).To(Equal(1))
		Expect(refused.stderr).To(And(ContainSubstring("error: refused"), ContainSubstring("has changed"), ContainSubstring(reason)))
		Expect(snapshot(ctx, namespace.Name)).To(Equal(before))
	},
		Entry("the Namespace was modified (namespace finalizer)", "--namespace-finalizer="+testNamespaceFinalizer, "the Namespace was modified", annotate),
		Entry("the Namespace was modified (namespace finalizer kubernetes)", "--namespace-finalizer=kubernetes",
			"the Namespace was modified", annotate),
		Entry("the Namespace was modified (metadata finalizer)", "--metadata-finalizer="+testFinalizer,
			"the Namespace was modified", annotate),
		Entry("the Namespace was recreated (namespace finalizer)", "--namespace-finalizer="+testNamespaceFinalizer, "the Namespace was recreated", recreate),
		Entry("the Namespace was recreated (metadata finalizer)", "--metadata-finalizer="+testFinalizer,
			"the Namespace was recreated", recreate),
		Entry("the object was modified", "--finalizer="+testFinalizer, "configmaps/held was modified",
			annotateConfigMap("held")),
	)

	It("stops at the first object that has changed and reports how many objects it changed", func(ctx context.Context) {
		namespace := makeStuckNamespace(ctx)
		stopped := force(ctx, &recordingProxy{before: func() { annotateConfigMap("second")(ctx, namespace) }}, namespace,
			"--finalizer="+testFinalizer)
		Expect(stopped.code).To(Equal(1))
		Expect(stopped.stdout).To(ContainSubstring("Removed finalizer %s from 1 object.\n", testFinalizer))
		Expect(stopped.stderr).To(And(MatchRegexp(`error: stopped, 1 object\b`),
			ContainSubstring("configmaps/second was modified"), Not(ContainSubstring("configmaps/held"))))
		Expect(configMapNamed(ctx, namespace, "held").Finalizers).To(ConsistOf("test.example.com/another"))
		Expect(configMapNamed(ctx, namespace, "second").Finalizers).To(ConsistOf(testFinalizer))
	})

	It("starts with a dry run, which does not delete the Namespace", func(ctx context.Context) {
		namespace := makeNamespace(ctx, bareAdmin, "dry-run")
		Expect(bareAdmin.Delete(ctx, namespace)).To(Succeed())
		before := snapshot(ctx, namespace.Name)
		w := &recordingProxy{}
		Expect(newProxiedUser(w).run(ctx, "finalize", namespace.Name, "--namespace-finalizer=kubernetes", "--ignore-active-owner").code).To(Equal(0))
		Expect(w.recorded()).To(Equal([]string{"dry run of PUT " + namespace.Name + "/finalize"}))
		Expect(snapshot(ctx, namespace.Name)).To(Equal(before))

		forced := force(ctx, w, namespace, "--namespace-finalizer=kubernetes")
		Expect(forced.code).To(Equal(0), forced.stderr)
		Expect(w.recorded()).To(Equal([]string{"PUT " + namespace.Name + "/finalize",
			"dry run of PUT " + namespace.Name + "/finalize"}))
		Expect(bareAdmin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).
			To(MatchError(ContainSubstring("not found")))
	})

	It("writes only to the selected objects", func(ctx context.Context) {
		namespace := makeStuckNamespace(ctx)
		w := &recordingProxy{}
		Expect(force(ctx, w, namespace, "--finalizer="+testFinalizer, "--resource=configmaps/held").code).To(Equal(0))
		Expect(slices.DeleteFunc(w.recorded(), func(write string) bool { return strings.HasPrefix(write, "dry run of ") })).
			To(Equal([]string{"PATCH " + namespace.Name + "/configmaps/held"}))
	})
})
