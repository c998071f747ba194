// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// The names of the second namespace, its manifests and its objects.
const (
	deletedName = "demo-development"
	deletedFile = "hack/demo/manifests/development.yaml"
	contentFile = "hack/demo/manifests/content.yaml"
	// heldName is the name of the StatefulSet that has the finalizer.
	heldName      = "database"
	heldFinalizer = "backup.corp.example.com/last-snapshot"
	// waitsForHeld is part of the message that explains why some objects have not been deleted yet.
	waitsForHeld = "waiting for the deletion of statefulsets.apps before deleting"
)

// The second agent that finalizes namespaces, as installed by config/samples/agent.
const (
	agentSample    = "config/samples/agent"
	agentNamespace = "origin-agent-system"
	agentAccount   = "origin-agent-finalization"
	agentFinalizer = corev1.FinalizerName("openshift.com/origin")
)

var (
	stateCommand = []string{
		"get", "namespace", deletedName,
		"--output=custom-columns=PHASE:.status.phase,FINALIZERS:.spec.finalizers,DELETED:.metadata.deletionTimestamp",
	}
	contentCommand = []string{
		"get", "pods,services,statefulsets,resourcequotas,secrets,networkpolicies,rolebindings",
		"--namespace=" + deletedName, "--output=name",
	}
	remainsCommand = []string{
		"get", "namespace", deletedName,
		"--output=jsonpath=" + messageOf(finalization.ReasonSomeResourcesRemain) +
			messageOf(finalization.ReasonSomeFinalizersRemain) + messageOf(finalization.ReasonContentDeletionOrdered),
	}
	releaseCommand = []string{
		"patch", "statefulset", heldName, "--namespace=" + deletedName, "--type=json",
		`--patch=[{"op": "remove", "path": "/metadata/finalizers"}]`,
	}
)

// messageOf returns the JSONPath of the message of the condition with the reason.
func messageOf(reason string) string {
	return `{.status.conditions[?(@.reason=="` + reason + `")].message}{"\n"}`
}

// The objects that the tour follows, with the names that kubectl prints.
var (
	// deletedFirst contains the objects that are deleted although the StatefulSet has a finalizer.
	deletedFirst = []string{"pod/web", "service/web", "resourcequota/default"}
	// deletedLast contains the objects that are kept until the StatefulSet is deleted.
	deletedLast = []string{"secret/backup-target", "networkpolicy.networking.k8s.io/default-deny-ingress",
		"rolebinding.rbac.authorization.k8s.io/owner"}
	held = "statefulset.apps/" + heldName
)

// showNamespaceFinalizers creates a namespace with two namespace finalizers.
func (d *demo) showNamespaceFinalizers(ctx context.Context) error {
	d.out.heading("A namespace with two namespace finalizers")
	d.out.say("A terminating namespace is removed when spec.finalizers is empty. Each entry belongs to one\n"+
		"controller. The administrator adds %s, and the API server adds kubernetes.", agentFinalizer)
	if _, err := d.show(ctx, d.admin, "apply", "-f", deletedFile); err != nil {
		return err
	}
	if err := d.showState(ctx, corev1.NamespaceActive, agentFinalizer, corev1.FinalizerKubernetes); err != nil {
		return err
	}
	d.out.say("\nThe namespace is initialized like any other. Then the administrator adds content:")
	if _, err := d.show(ctx, d.admin, "wait", "--for=condition=Ready", "namespace/"+deletedName); err != nil {
		return err
	}
	if _, err := d.show(ctx, d.admin, "apply", "-f", contentFile); err != nil {
		return err
	}
	return d.showContent(ctx, slices.Concat(deletedFirst, []string{held}, deletedLast))
}

// showDeletion deletes the namespace, and shows the remaining objects and why they remain.
func (d *demo) showDeletion(ctx context.Context) error {
	d.out.heading("The namespace is deleted")
	if _, err := d.show(ctx, d.admin, "delete", "namespace", deletedName, "--wait=false"); err != nil {
		return err
	}
	if err := d.showState(ctx, corev1.NamespaceTerminating, agentFinalizer, corev1.FinalizerKubernetes); err != nil {
		return err
	}
	d.out.say("\nThe manager is responsible for %s and deletes the content. The StatefulSet\n"+
		"has a finalizer, and the controller that removes it is not running:", corev1.FinalizerKubernetes)
	if _, err := d.show(ctx, d.admin, "wait", "--for=condition="+string(corev1.NamespaceFinalizersRemaining),
		"--timeout=60s", "namespace/"+deletedName); err != nil {
		return err
	}
	// At first, the conditions might also mention the Pod.
	if err := d.untilOnlyHeld(ctx); err != nil {
		return err
	}
	output, err := d.show(ctx, d.admin, remainsCommand...)
	if err != nil {
		return err
	}
	for _, want := range []string{
		"statefulsets.apps has 1 resource instances", heldFinalizer + " in 1 resource instances", waitsForHeld,
	} {
		if !strings.Contains(output, want) {
			return fmt.Errorf("the conditions of namespace %q do not contain %q", deletedName, want)
		}
	}
	d.out.say("\nThe controller might need its permissions and configuration until it removes the finalizer.\n" +
		"Therefore, they are deleted last. The Pod, the Service and the quota are already deleted.")
	return d.showContent(ctx, slices.Concat([]string{held}, deletedLast))
}

// showRelease removes the finalizer, and shows that the manager removes only its namespace finalizer.
func (d *demo) showRelease(ctx context.Context) error {
	d.out.heading("The finalizer is removed")
	d.out.say("The administrator removes the finalizer in place of the controller.")
	if _, err := d.show(ctx, d.admin, releaseCommand...); err != nil {
		return err
	}
	if _, err := d.show(ctx, d.admin, "wait", "--for=condition="+string(corev1.NamespaceContentRemaining)+"=False",
		"--timeout=60s", "namespace/"+deletedName); err != nil {
		return err
	}
	// The namespace finalizer is removed shortly after the condition changes.
	if err := d.poll(ctx, func(ctx context.Context) (bool, error) {
		namespace, err := d.getNamespace(ctx, deletedName)
		return err == nil && !finalization.HasFinalizer(namespace, corev1.FinalizerKubernetes), err
	}); err != nil {
		return fmt.Errorf("the manager did not remove its finalizer from namespace %q: %w", deletedName, err)
	}
	d.out.say("\nThe namespace is empty. The manager has removed only its own namespace finalizer:")
	if err := d.showContent(ctx, nil); err != nil {
		return err
	}
	return d.showState(ctx, corev1.NamespaceTerminating, agentFinalizer)
}

// showAgent starts the second agent, which removes the last namespace finalizer.
func (d *demo) showAgent(ctx context.Context) error {
	d.out.heading("The second agent")
	d.out.say("The second agent is the same manager, with another namespace finalizer and its own\n" +
		"ServiceAccount. No Pods run here, so the demo starts it with the token of that account.")
	if _, err := d.show(ctx, d.admin, "apply", "-k", agentSample); err != nil {
		return err
	}
	if err := d.startAgent(ctx); err != nil {
		return err
	}
	if _, err := d.show(ctx, d.admin, "wait", "--for=delete", "--timeout=60s", "namespace/"+deletedName); err != nil {
		return err
	}
	d.out.say("\nThe agent has removed the last namespace finalizer, so the namespace no longer exists:")
	// The command is expected to fail.
	_, _ = d.show(ctx, d.admin, "get", "namespace", deletedName)
	if _, err := d.getNamespace(ctx, deletedName); !apierrors.IsNotFound(err) {
		return errors.Join(err, fmt.Errorf("namespace %q still exists", deletedName))
	}
	return nil
}

// startAgent runs the manager with the ServiceAccount and the flags of the sample.
func (d *demo) startAgent(ctx context.Context) error {
	config, err := d.controlPlane.ServiceAccountConfig(ctx, agentNamespace, agentAccount)
	if err != nil {
		return err
	}
	agent, err := controlplane.RunManager(ctx, config, func(options *manager.Options) {
		options.Controllers = manager.Controllers{manager.Finalization: true}
		options.NamespaceFinalizer = agentFinalizer
		options.SystemNamespace = agentNamespace
	})
	if err != nil {
		return err
	}
	d.stops = append(d.stops, agent.Stop)
	return nil
}

// showState shows and checks the phase, the namespace finalizers and the deletion timestamp.
func (d *demo) showState(ctx context.Context, phase corev1.NamespacePhase, finalizers ...corev1.FinalizerName) error {
	if _, err := d.show(ctx, d.admin, stateCommand...); err != nil {
		return err
	}
	namespace, err := d.getNamespace(ctx, deletedName)
	if err != nil {
		return err
	}
	isDeleted := namespace.DeletionTimestamp != nil
	switch {
	case namespace.Status.Phase != phase:
		return fmt.Errorf("namespace %q should be %s, but is %s", deletedName, phase, namespace.Status.Phase)
	case isDeleted != (phase == corev1.NamespaceTerminating):
		return fmt.Errorf("namespace %q is %s, and its deletionTimestamp is %v",
			deletedName, phase, namespace.DeletionTimestamp)
	case !slices.Equal(namespace.Spec.Finalizers, finalizers):
		return fmt.Errorf("namespace %q should have the namespace finalizers %v, but has %v",
			deletedName, finalizers, namespace.Spec.Finalizers)
	}
	return nil
}

// showContent shows and checks the content of the namespace.
func (d *demo) showContent(ctx context.Context, wanted []string) error {
	output, err := d.show(ctx, d.admin, contentCommand...)
	if err != nil {
		return err
	}
	if found := namesIn(output); !slices.Equal(found, slices.Sorted(slices.Values(wanted))) {
		return fmt.Errorf("namespace %q should contain %v, but contains %v", deletedName, wanted, found)
	}
	return nil
}

// untilOnlyHeld waits until only the StatefulSet prevents the deletion of the remaining
// objects.
func (d *demo) untilOnlyHeld(ctx context.Context) error {
	err := d.poll(ctx, func(ctx context.Context) (bool, error) {
		namespace, err := d.getNamespace(ctx, deletedName)
		if err != nil {
			return false, err
		}
		condition := nsobject.FindCondition(namespace, corev1.NamespaceDeletionContentFailure)
		return condition != nil && strings.Contains(condition.Message, waitsForHeld), nil
	})
	if err != nil {
		return fmt.Errorf("the conditions of namespace %q do not report the order of deletion: %w", deletedName, err)
	}
	return nil
}

// namesIn returns the sorted names in the output of kubectl.
func namesIn(output string) []string {
	var names []string
	for line := range strings.Lines(output) {
		if name := strings.TrimSpace(line); strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (d *demo) getNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	client, err := kubernetes.NewForConfig(d.admin.config)
	if err != nil {
		return nil, fmt.Errorf("failed to create a client: %w", err)
	}
	return client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
}
