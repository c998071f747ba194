// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/creack/pty"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
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
	target, err := url.Parse(bare.Admin.Config.Host)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(bare.Admin.Config)
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
		return newProxiedUser(w).run(ctx, append([]string{"finalize", namespace.Name, "--ignore-active-owner",
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
		bareAdmin.Deletes(ctx, namespace)
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

// makeStuckNamespace creates a terminating namespace with two metadata finalizers and two namespace
// finalizers. The namespace contains two terminating objects with finalizers and two objects that
// are not being deleted.
func makeStuckNamespace(ctx context.Context) *corev1.Namespace {
	GinkgoHelper()
	namespace := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: unique("stuck"), Finalizers: []string{testFinalizer, "test.example.com/another"},
		},
		Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{testNamespaceFinalizer}},
	}
	bareAdmin.Creates(ctx, namespace)
	DeferCleanup(func(ctx context.Context) { cleanUp(ctx, namespace.Name) })
	makeConfigMap(ctx, bareAdmin, namespace.Name, "kept")
	makeSecret(ctx, namespace.Name)
	for name, finalizers := range map[string][]string{
		"held": {testFinalizer, "test.example.com/another"}, "second": {testFinalizer},
	} {
		bareAdmin.Deletes(ctx, makeConfigMap(ctx, bareAdmin, namespace.Name, name, finalizers...))
	}
	bareAdmin.Deletes(ctx, namespace)
	bareAdmin.Reads(ctx, namespace)
	return namespace
}

// cleanUp deletes a namespace and its content, so that no orphans remain for other specs.
func cleanUp(ctx context.Context, name string) {
	GinkgoHelper()
	var configMaps corev1.ConfigMapList
	Expect(bareAdmin.List(ctx, &configMaps, client.InNamespace(name))).To(Succeed())
	for i := range configMaps.Items {
		framework.RemoveFinalizers(ctx, bareAdmin, &configMaps.Items[i])
		Expect(client.IgnoreNotFound(bareAdmin.Delete(ctx, &configMaps.Items[i]))).To(Succeed())
	}
	Expect(bareAdmin.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(name))).To(Succeed())
	namespace := &corev1.Namespace{}
	err := bareAdmin.Get(ctx, client.ObjectKey{Name: name}, namespace)
	if apierrors.IsNotFound(err) {
		return
	}
	Expect(err).NotTo(HaveOccurred())
	framework.RemoveFinalizers(ctx, bareAdmin, namespace)
	finalize(ctx, bareAdmin, name)
}

func makeSecret(ctx context.Context, namespace string) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kept"}, Data: map[string][]byte{"key": []byte("secret")},
	}
	bareAdmin.Creates(ctx, secret)
	return secret
}

func configMapNamed(ctx context.Context, namespace *corev1.Namespace, name string) *corev1.ConfigMap {
	GinkgoHelper()
	configMap := &corev1.ConfigMap{}
	Expect(bareAdmin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: name}, configMap)).To(Succeed())
	return configMap
}

// snapshot returns the resourceVersions of a namespace and the objects in it.
func snapshot(ctx context.Context, name string) map[string]string {
	GinkgoHelper()
	versions := map[string]string{}
	namespace := &corev1.Namespace{}
	Expect(bareAdmin.Get(ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
	versions["namespace"] = namespace.ResourceVersion
	var configMaps corev1.ConfigMapList
	Expect(bareAdmin.List(ctx, &configMaps, client.InNamespace(name))).To(Succeed())
	for _, object := range configMaps.Items {
		versions["configmap "+object.Name] = object.ResourceVersion
	}
	var secrets corev1.SecretList
	Expect(bareAdmin.List(ctx, &secrets, client.InNamespace(name))).To(Succeed())
	for _, object := range secrets.Items {
		versions["secret "+object.Name] = object.ResourceVersion
	}
	return versions
}

// rulesToRead returns RBAC rules that allow users to read namespaces and the given resource types.
func rulesToRead(resources ...string) []rbacv1.PolicyRule {
	read := []string{"get", "list", "watch"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: append(resources, "namespaces"), Verbs: read},
		{APIGroups: []string{"*"}, Resources: resources, Verbs: read},
	}
}

// denyUpdates creates a policy that denies the plugin's updates of ConfigMaps in a namespace. It
// deletes the policy at the end of the spec.
func denyUpdates(ctx context.Context, namespace string) {
	GinkgoHelper()
	// Without the field manager, the policy would deny the updates by the spec's cleanup.
	framework.DenyByPolicy(ctx, bareAdmin, framework.RequestsFor("", "configmaps", admissionregistrationv1.Update),
		fmt.Sprintf("request.namespace == %q && request.options.?fieldManager.orValue('') == 'kubectl-nslifecycle'", namespace),
		"updates are denied")
}

var annotation = framework.MergePatch(`{"metadata":{"annotations":{"a":"b"}}}`)

func annotate(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Expect(bareAdmin.Patch(ctx, namespace, annotation)).To(Succeed())
}

func annotateConfigMap(name string) func(context.Context, *corev1.Namespace) {
	return func(ctx context.Context, namespace *corev1.Namespace) {
		GinkgoHelper()
		Expect(bareAdmin.Patch(ctx, configMapNamed(ctx, namespace, name), annotation)).To(Succeed())
	}
}

func deleteKept(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	bareAdmin.Deletes(ctx, configMapNamed(ctx, namespace, "kept"))
}

// recreate deletes a namespace and recreates it with the same finalizers.
func recreate(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	cleanUp(ctx, namespace.Name)
	again := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: namespace.Name, Finalizers: namespace.Finalizers},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{testNamespaceFinalizer}},
	}
	bareAdmin.Creates(ctx, again)
	bareAdmin.Deletes(ctx, again)
}

// command returns a kubectl nslifecycle command for the given working directory without starting
// it.
func (u *user) command(dir string, args ...string) *exec.Cmd {
	command := exec.Command(filepath.Join(bin, "kubectl"), append([]string{"nslifecycle"}, args...)...)
	command.Dir, command.Env = dir, u.environment()
	return command
}

// terminal is a pseudo-terminal in which kubectl nslifecycle runs.
type terminal struct {
	file   *os.File
	screen *gbytes.Buffer
	exited chan struct{}
	status int
}

func (u *user) onTerminal(dir string, args ...string) *terminal {
	GinkgoHelper()
	command := u.command(dir, args...)
	command.Env = append(command.Env, "TERM=xterm", "NO_COLOR=")
	file, err := pty.StartWithSize(command, &pty.Winsize{Rows: 40, Cols: 300})
	Expect(err).NotTo(HaveOccurred())
	t := &terminal{file: file, screen: gbytes.NewBuffer(), exited: make(chan struct{})}
	go func() {
		defer close(t.exited)
		_, _ = io.Copy(io.MultiWriter(t.screen, GinkgoWriter), file) // Copy fails when the process exits.
		_ = command.Wait()                                           // The exit status is in ProcessState.
		t.status = command.ProcessState.ExitCode()
	}()
	DeferCleanup(func() {
		_ = command.Process.Kill()
		<-t.exited
		Expect(file.Close()).To(Succeed())
	})
	return t
}

// expect waits until the terminal shows the given text.
func (t *terminal) expect(ctx context.Context, text string) {
	GinkgoHelper()
	Eventually(t.output).WithContext(ctx).Should(ContainSubstring(text))
}

// output returns everything that was written to the terminal.
func (t *terminal) output() string {
	return strings.ReplaceAll(string(t.screen.Contents()), "\r\n", "\n")
}

func (t *terminal) enter(line string) {
	GinkgoHelper()
	_, err := io.WriteString(t.file, line+"\n")
	Expect(err).NotTo(HaveOccurred())
}

// interrupt types Ctrl-C.
func (t *terminal) interrupt() {
	GinkgoHelper()
	_, err := io.WriteString(t.file, "\x03")
	Expect(err).NotTo(HaveOccurred())
}

// wait waits until the command exits and returns its exit status.
func (t *terminal) wait(ctx context.Context) int {
	GinkgoHelper()
	Eventually(t.exited).WithContext(ctx).WithTimeout(time.Minute).Should(BeClosed())
	return t.status
}
