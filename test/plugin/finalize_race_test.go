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

// wire is what stands between a user and the API server.
type wire struct {
	// before runs once, when the first write that is no dry run is about to be made, and so
	// after everything has been looked at for the last time.
	before func()

	mutex  sync.Mutex
	writes []string
}

// tapped makes a user with all rights whose requests pass through a wire.
func tapped(w *wire) *user {
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
			w.note(request, isDryRun)
		}
		proxy.ServeHTTP(response, request)
	}))
	DeferCleanup(server.Close)
	return newUser(&rest.Config{Host: server.URL})
}

// isDryRun tells whether a request is one: a DELETE has that in its body.
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

func (w *wire) note(request *http.Request, isDryRun bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	text := request.Method + " " + strings.TrimPrefix(request.URL.Path, "/api/v1/namespaces/")
	if isDryRun {
		text = "dry run of " + text
	}
	w.writes = append(w.writes, text)
}

// made returns the writes that have passed, each once.
func (w *wire) made() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(w.writes)))
}

// What was looked at a moment ago may have changed when the write arrives: the write itself
// says what it is meant for, and the API server refuses it for anything else.
var _ = Describe("finalize, at the very write", func() {
	force := func(ctx context.Context, w *wire, namespace *corev1.Namespace, flags ...string) result {
		GinkgoHelper()
		return tapped(w).run(ctx, append([]string{"finalize", namespace.Name, "--ignore-active-owner", "--no-backup",
			"--dry-run=false", "--confirm=" + namespace.Name}, flags...)...)
	}

	DescribeTable("is refused by the API server if", func(ctx context.Context, flag, reason string,
		change func(ctx context.Context, namespace *corev1.Namespace)) {
		namespace := makeStuckNamespace(ctx)
		var before map[string]string
		w := &wire{before: func() {
			change(ctx, namespace)
			before = snapshot(ctx, namespace.Name)
		}}
		refused := force(ctx, w, namespace, flag, "--orphan")
		Expect(before).NotTo(BeEmpty(), "it came to the write")
		Expect(refused.code).To(Equal(1))
		Expect(refused.stderr).To(And(ContainSubstring("error: refused, and nothing was changed: "),
			ContainSubstring("has changed since it was shown"), ContainSubstring(reason)))
		Expect(snapshot(ctx, namespace.Name)).To(Equal(before))
	},
		Entry("the Namespace was written to, for a token", "--namespace-finalizer="+testToken, "the Namespace was written to", annotate),
		Entry("the Namespace was written to, for the token kubernetes", "--namespace-finalizer=kubernetes",
			"the Namespace was written to", annotate),
		Entry("the Namespace was written to, for its finalizer", "--metadata-finalizer="+testFinalizer,
			"the Namespace was written to", annotate),
		Entry("the Namespace is another one, for a token", "--namespace-finalizer="+testToken, "the Namespace was created anew", recreate),
		Entry("the Namespace is another one, for its finalizer", "--metadata-finalizer="+testFinalizer,
			"the Namespace was created anew", recreate),
		Entry("the object was written to", "--finalizer="+testFinalizer, "configmaps/held was written to",
			annotateConfigMap("held")),
	)

	It("stops at the first object that has changed, and says how far it has come", func(ctx context.Context) {
		namespace := makeStuckNamespace(ctx)
		stopped := force(ctx, &wire{before: func() { annotateConfigMap("second")(ctx, namespace) }}, namespace,
			"--finalizer="+testFinalizer)
		Expect(stopped.code).To(Equal(1))
		Expect(stopped.stdout).To(ContainSubstring("Removed finalizer %s from 1 object.\n", testFinalizer))
		Expect(stopped.stderr).To(And(ContainSubstring("error: stopped before the other 1 object: "),
			ContainSubstring("configmaps/second was written to"), Not(ContainSubstring("configmaps/held"))))
		Expect(configMapNamed(ctx, namespace, "held").Finalizers).To(ConsistOf("test.example.com/another"))
		Expect(configMapNamed(ctx, namespace, "second").Finalizers).To(ConsistOf(testFinalizer))
	})

	It("has been rehearsed, which removes nothing even where nothing else holds the Namespace", func(ctx context.Context) {
		namespace := makeNamespace(ctx, bareAdmin, "rehearsed")
		Expect(bareAdmin.Delete(ctx, namespace)).To(Succeed())
		before := snapshot(ctx, namespace.Name)
		w := &wire{}
		Expect(tapped(w).run(ctx, "finalize", namespace.Name, "--namespace-finalizer=kubernetes", "--ignore-active-owner").code).To(Equal(0))
		Expect(w.made()).To(Equal([]string{"dry run of PUT " + namespace.Name + "/finalize"}))
		Expect(snapshot(ctx, namespace.Name)).To(Equal(before))

		forced := force(ctx, w, namespace, "--namespace-finalizer=kubernetes")
		Expect(forced.code).To(Equal(0), forced.stderr)
		Expect(w.made()).To(Equal([]string{"PUT " + namespace.Name + "/finalize",
			"dry run of PUT " + namespace.Name + "/finalize"}))
		Expect(bareAdmin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).
			To(MatchError(ContainSubstring("not found")))
	})

	It("writes to nothing but what it names", func(ctx context.Context) {
		namespace := makeStuckNamespace(ctx)
		w := &wire{}
		Expect(force(ctx, w, namespace, "--finalizer="+testFinalizer, "--resource=configmaps/held").code).To(Equal(0))
		Expect(slices.DeleteFunc(w.made(), func(write string) bool { return strings.HasPrefix(write, "dry run of ") })).
			To(Equal([]string{"PATCH " + namespace.Name + "/configmaps/held"}))
	})
})
