// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

const testFinalizer = "test.example.com/hold"

// unique returns a name that no other spec of this process uses.
var unique = framework.Unique

// user runs kubectl with a kubeconfig.
type user struct {
	// home is a directory with the kubeconfig and the state of the plugin.
	home string
}

func newUser(config *rest.Config) *user {
	GinkgoHelper()
	home, err := os.MkdirTemp(plane.Dir, "home-")
	Expect(err).NotTo(HaveOccurred())
	Expect(controlplane.WriteKubeconfig(filepath.Join(home, "kubeconfig"), config)).To(Succeed())
	return &user{home: home}
}

// newRestrictedUser creates a user with the permissions that the given rules grant.
func newRestrictedUser(ctx context.Context, in *framework.Cluster, name string, rules ...rbacv1.PolicyRule) *user {
	GinkgoHelper()
	return newUser(in.AddUserWithRules(ctx, name, rules...).Config)
}

// environment returns environment variables with the plugin in PATH.
func (u *user) environment() []string {
	return append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"),
		"HOME="+u.home, "XDG_CONFIG_HOME=", "KUBECONFIG="+filepath.Join(u.home, "kubeconfig"))
}

// result is the output and the exit status of a command.
type result struct {
	stdout, stderr string
	code           int
}

// run runs kubectl nslifecycle.
func (u *user) run(ctx context.Context, args ...string) result {
	GinkgoHelper()
	return u.runWith(ctx, nil, args...)
}

// runWith runs kubectl nslifecycle with additional environment variables.
func (u *user) runWith(ctx context.Context, environment []string, args ...string) result {
	GinkgoHelper()
	return u.kubectl(ctx, environment, append([]string{"nslifecycle"}, args...)...)
}

func (u *user) kubectl(ctx context.Context, environment []string, args ...string) result {
	GinkgoHelper()
	var stdout, stderr strings.Builder
	command := exec.CommandContext(ctx, filepath.Join(bin, "kubectl"), args...)
	command.Env = append(u.environment(), environment...)
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		Expect(err).NotTo(HaveOccurred())
	}
	GinkgoWriter.Printf("$ kubectl %s\n%s%s", strings.Join(args, " "), stdout.String(), stderr.String())
	Expect(stdout.String() + stderr.String()).NotTo(ContainSubstring("panic:"))
	Expect(stdout.String()).NotTo(ContainSubstring("\x1b"), "output to a pipe must not have colors")
	return newResult(stdout.String(), stderr.String(), command)
}

// newResult verifies that the output of the plugin fits into 100 columns, and joins the lines of wrapped messages
// in stderr.
func newResult(stdout, stderr string, command *exec.Cmd) result {
	GinkgoHelper()
	isComplete := !slices.Contains(command.Args, "nslifecycle") || slices.ContainsFunc(command.Args, func(arg string) bool {
		return arg == "-o" || strings.HasPrefix(arg, "--output") || strings.HasPrefix(arg, "-v") ||
			arg == "__complete" || arg == "list"
	})
	for line := range strings.Lines(stdout + stderr) {
		text := strings.TrimSpace(line)
		isRow := strings.Contains(text, "   ") // Rows of tables are not wrapped.
		isVerbatim := strings.HasPrefix(text, "kubectl ") || !strings.Contains(text, " ") || isRow
		if !isComplete && !isVerbatim {
			Expect(len([]rune(strings.TrimSuffix(line, "\n")))).To(BeNumerically("<=", 100), line)
		}
	}
	return result{
		stdout: stdout, stderr: strings.ReplaceAll(stderr, "\n  ", " "), code: command.ProcessState.ExitCode(),
	}
}

// running is a command that was started with start.
type running struct {
	command        *exec.Cmd
	stdout, stderr *gbytes.Buffer
	done           chan struct{}
}

// start starts kubectl nslifecycle and kills it at the end of the spec.
func (u *user) start(args ...string) *running {
	GinkgoHelper()
	r := &running{stdout: gbytes.NewBuffer(), stderr: gbytes.NewBuffer(), done: make(chan struct{})}
	r.command = exec.Command(filepath.Join(bin, "kubectl"), append([]string{"nslifecycle"}, args...)...)
	r.command.Env = u.environment()
	r.command.Stdout, r.command.Stderr = r.stdout, r.stderr
	Expect(r.command.Start()).To(Succeed())
	go func() {
		_ = r.command.Wait() // The exit status is in ProcessState.
		close(r.done)
	}()
	DeferCleanup(func() {
		_ = r.command.Process.Kill()
		<-r.done
	})
	return r
}

// wait waits for the command and returns its result.
func (r *running) wait(ctx context.Context) result {
	GinkgoHelper()
	Eventually(r.done).WithContext(ctx).WithTimeout(60 * time.Second).Should(BeClosed())
	finished := newResult(string(r.stdout.Contents()), string(r.stderr.Contents()), r.command)
	GinkgoWriter.Printf("$ %s\n%s%s", strings.Join(r.command.Args, " "), finished.stdout, finished.stderr)
	return finished
}

// makeNamespace creates a namespace with a label and deletes it at the end of the spec.
func makeNamespace(ctx context.Context, user *framework.User, prefix string) *corev1.Namespace {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: unique(prefix), Labels: map[string]string{"test": prefix},
	}}
	user.Creates(ctx, namespace)
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(user.Delete(ctx, namespace))).To(Or(Succeed(), Satisfy(apierrors.IsConflict)))
	})
	return namespace
}

// makeConfigMap creates a ConfigMap.
func makeConfigMap(ctx context.Context, user *framework.User, namespace, name string, finalizers ...string) *corev1.ConfigMap {
	GinkgoHelper()
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: finalizers},
		Data:       map[string]string{"key": "value"},
	}
	user.Creates(ctx, object)
	return object
}

// finalize deletes a Namespace and removes its namespace finalizers without deleting its content.
func finalize(ctx context.Context, user *framework.User, name string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{}
	Expect(user.Get(ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
	Expect(client.IgnoreNotFound(user.Delete(ctx, namespace))).To(Succeed())
	framework.SetNamespaceFinalizers(ctx, user, name)
	framework.ExpectDeleted(ctx, user, namespace)
}
