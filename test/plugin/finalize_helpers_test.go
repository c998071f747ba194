// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
	Expect(bareAdmin.Create(ctx, namespace)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { cleanUp(ctx, namespace.Name) })
	makeConfigMap(ctx, bareAdmin, namespace.Name, "kept")
	makeSecret(ctx, namespace.Name)
	for name, finalizers := range map[string][]string{
		"held": {testFinalizer, "test.example.com/another"}, "second": {testFinalizer},
	} {
		Expect(bareAdmin.Delete(ctx, makeConfigMap(ctx, bareAdmin, namespace.Name, name, finalizers...))).To(Succeed())
	}
	Expect(bareAdmin.Delete(ctx, namespace)).To(Succeed())
	Expect(bareAdmin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
	return namespace
}

// cleanUp deletes a namespace and its content, so that no orphans remain for other specs.
func cleanUp(ctx context.Context, name string) {
	GinkgoHelper()
	var configMaps corev1.ConfigMapList
	Expect(bareAdmin.List(ctx, &configMaps, client.InNamespace(name))).To(Succeed())
	for i := range configMaps.Items {
		release(ctx, bareAdmin, &configMaps.Items[i])
		Expect(client.IgnoreNotFound(bareAdmin.Delete(ctx, &configMaps.Items[i]))).To(Succeed())
	}
	Expect(bareAdmin.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(name))).To(Succeed())
	namespace := &corev1.Namespace{}
	err := bareAdmin.Get(ctx, client.ObjectKey{Name: name}, namespace)
	if apierrors.IsNotFound(err) {
		return
	}
	Expect(err).NotTo(HaveOccurred())
	release(ctx, bareAdmin, namespace)
	finalize(ctx, bareAdmin, name)
}

func makeSecret(ctx context.Context, namespace string) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kept"}, Data: map[string][]byte{"key": []byte("secret")},
	}
	Expect(bareAdmin.Create(ctx, secret)).To(Succeed())
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
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: unique("deny")},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
						Rule: admissionregistrationv1.Rule{
							APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
						},
					},
				}},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "namespace", Expression: "request.namespace == '" + namespace + "'"},
				// Without this condition, the policy would deny the updates by the spec's cleanup.
				{Name: "plugin", Expression: "request.options.?fieldManager.orValue('') == 'kubectl-nslifecycle'"},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "updates are denied"}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        policy.Name,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	for _, object := range []client.Object{policy, binding} {
		Expect(bareAdmin.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(bareAdmin.Delete(ctx, object)).To(Succeed()) })
	}
}

var annotation = client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"a":"b"}}}`))

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
	Expect(bareAdmin.Delete(ctx, configMapNamed(ctx, namespace, "kept"))).To(Succeed())
}

// recreate deletes a namespace and recreates it with the same finalizers.
func recreate(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	cleanUp(ctx, namespace.Name)
	again := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: namespace.Name, Finalizers: namespace.Finalizers},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{testNamespaceFinalizer}},
	}
	Expect(bareAdmin.Create(ctx, again)).To(Succeed())
	Expect(bareAdmin.Delete(ctx, again)).To(Succeed())
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
