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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

// What the manifests of the second namespace hold.
const (
	endingName  = "development"
	endingFile  = "test/demo/manifests/development.yaml"
	contentFile = "test/demo/manifests/content.yaml"
	// heldName is the StatefulSet with the finalizer.
	heldName      = "database"
	heldFinalizer = "backup.corp.example.com/last-snapshot"
	// waitsForHeld ends the condition that says why some things are kept.
	waitsForHeld = "deleted after statefulsets.apps"
)

// The second agent, as config/samples/agent installs it.
const (
	agentSample    = "config/samples/agent"
	agentNamespace = "origin-agent-system"
	agentAccount   = "origin-agent-controller-manager"
	agentToken     = corev1.FinalizerName("openshift.com/origin")
)

var (
	stateCommand = []string{
		"get", "namespace", endingName,
		"--output=custom-columns=PHASE:.status.phase,TOKENS:.spec.finalizers,DELETED:.metadata.deletionTimestamp",
	}
	contentCommand = []string{
		"get", "pods,services,statefulsets,resourcequotas,secrets,networkpolicies,rolebindings",
		"--namespace=" + endingName, "--output=name",
	}
	remainsCommand = []string{
		"get", "namespace", endingName,
		"--output=jsonpath=" + messageOf(finalization.ReasonSomeResourcesRemain) +
			messageOf(finalization.ReasonSomeFinalizersRemain) + messageOf(finalization.ReasonContentDeletionOrdered),
	}
	releaseCommand = []string{
		"patch", "statefulset", heldName, "--namespace=" + endingName, "--type=json",
		`--patch=[{"op": "remove", "path": "/metadata/finalizers"}]`,
	}
)

// messageOf is the JSONPath of the message of the condition with a reason.
func messageOf(reason string) string {
	return `{.status.conditions[?(@.reason=="` + reason + `")].message}{"\n"}`
}

// The objects that the tour follows, as kubectl names them.
var (
	// deletedFirst go although the StatefulSet holds its finalizer.
	deletedFirst = []string{"pod/web", "service/web", "resourcequota/default"}
	// deletedLast are kept until it has gone.
	deletedLast = []string{"secret/backup-target", "networkpolicy.networking.k8s.io/default-deny-ingress",
		"rolebinding.rbac.authorization.k8s.io/owner"}
	held = "statefulset.apps/" + heldName
)

// showTokens makes a namespace that two agents answer for.
func (d *demo) showTokens(ctx context.Context) error {
	d.out.heading("A namespace that two agents answer for")
	d.out.say("The tokens in spec.finalizers say who has to agree before a namespace goes. The\n"+
		"administrator asks for %s, and the API server adds its own.", agentToken)
	if _, err := d.show(ctx, d.admin, "apply", "-f", endingFile); err != nil {
		return err
	}
	if err := d.showState(ctx, corev1.NamespaceActive, agentToken, corev1.FinalizerKubernetes); err != nil {
		return err
	}
	d.out.say("\nIt is initialized like any other. Then it is filled:")
	if _, err := d.show(ctx, d.admin, "wait", "--for=condition=Initializing=False", "namespace/"+endingName); err != nil {
		return err
	}
	if _, err := d.show(ctx, d.admin, "apply", "-f", contentFile); err != nil {
		return err
	}
	return d.showContent(ctx, slices.Concat(deletedFirst, []string{held}, deletedLast))
}

// showDeletion deletes it, and shows what remains and why.
func (d *demo) showDeletion(ctx context.Context) error {
	d.out.heading("It is deleted")
	if _, err := d.show(ctx, d.admin, "delete", "namespace", endingName, "--wait=false"); err != nil {
		return err
	}
	if err := d.showState(ctx, corev1.NamespaceTerminating, agentToken, corev1.FinalizerKubernetes); err != nil {
		return err
	}
	d.out.say("\nThe manager answers for %s and has begun to empty it. The StatefulSet has a\n"+
		"finalizer, and the controller that should release it does not run:", corev1.FinalizerKubernetes)
	if _, err := d.show(ctx, d.admin, "wait", "--for=condition="+string(corev1.NamespaceFinalizersRemaining),
		"--timeout=60s", "namespace/"+endingName); err != nil {
		return err
	}
	// The first pass may have to wait for the Pod, and its conditions say so.
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
			return fmt.Errorf("the conditions of namespace %q do not contain %q", endingName, want)
		}
	}
	d.out.say("\nThat controller may need its rights and its settings to the end. So they are kept\n" +
		"until there is nothing else; the Pod, the Service and the quota are gone.")
	return d.showContent(ctx, slices.Concat([]string{held}, deletedLast))
}

// showRelease releases the finalizer, and shows that one token goes and the other stays.
func (d *demo) showRelease(ctx context.Context) error {
	d.out.heading("The finalizer is released")
	d.out.say("The administrator does what the controller should do.")
	if _, err := d.show(ctx, d.admin, releaseCommand...); err != nil {
		return err
	}
	if _, err := d.show(ctx, d.admin, "wait", "--for=condition="+string(corev1.NamespaceContentRemaining)+"=False",
		"--timeout=60s", "namespace/"+endingName); err != nil {
		return err
	}
	// The token goes a moment after the condition.
	if err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		namespace, err := d.endingNamespace(ctx)
		return err == nil && !finalization.HasFinalizer(namespace, corev1.FinalizerKubernetes), err
	}); err != nil {
		return fmt.Errorf("the manager did not release namespace %q: %w", endingName, err)
	}
	d.out.say("\nNothing is left. The manager has released its token, and only its own:")
	if err := d.showContent(ctx, nil); err != nil {
		return err
	}
	return d.showState(ctx, corev1.NamespaceTerminating, agentToken)
}

// showAgent starts the second agent, which ends the namespace.
func (d *demo) showAgent(ctx context.Context) error {
	d.out.heading("The second agent")
	d.out.say("It is the same manager with another token, and the rights of a ServiceAccount of\n" +
		"its own. No Pod runs here, so the demo runs it as that ServiceAccount.")
	if _, err := d.show(ctx, d.admin, "apply", "-k", agentSample); err != nil {
		return err
	}
	if err := d.startAgent(ctx); err != nil {
		return err
	}
	if _, err := d.show(ctx, d.admin, "wait", "--for=delete", "--timeout=60s", "namespace/"+endingName); err != nil {
		return err
	}
	d.out.say("\nIts token was the last one, and the namespace is gone:")
	// It fails: that is what is to be shown.
	_, _ = d.show(ctx, d.admin, "get", "namespace", endingName)
	if _, err := d.endingNamespace(ctx); !apierrors.IsNotFound(err) {
		return errors.Join(err, fmt.Errorf("namespace %q should be gone", endingName))
	}
	return nil
}

// startAgent runs the manager with the identity and the work of the sample.
func (d *demo) startAgent(ctx context.Context) error {
	config, err := d.controlPlane.ServiceAccountConfig(ctx, agentNamespace, agentAccount)
	if err != nil {
		return err
	}
	agent, err := controlplane.RunManager(ctx, config, func(options *manager.Options) {
		options.Controllers = manager.Controllers{manager.Finalization: true}
		options.FinalizerToken = agentToken
		options.SystemNamespace = agentNamespace
	})
	if err != nil {
		return err
	}
	d.stops = append(d.stops, agent.Stop)
	return nil
}

// showState shows and checks the phase, the tokens and the deletion of the namespace.
func (d *demo) showState(ctx context.Context, phase corev1.NamespacePhase, tokens ...corev1.FinalizerName) error {
	if _, err := d.show(ctx, d.admin, stateCommand...); err != nil {
		return err
	}
	namespace, err := d.endingNamespace(ctx)
	if err != nil {
		return err
	}
	isDeleted := namespace.DeletionTimestamp != nil
	switch {
	case namespace.Status.Phase != phase:
		return fmt.Errorf("namespace %q should be %s, it is %s", endingName, phase, namespace.Status.Phase)
	case isDeleted != (phase == corev1.NamespaceTerminating):
		return fmt.Errorf("namespace %q is %s, and its deletionTimestamp is %v",
			endingName, phase, namespace.DeletionTimestamp)
	case !slices.Equal(namespace.Spec.Finalizers, tokens):
		return fmt.Errorf("namespace %q should have the tokens %v, it has %v", endingName, tokens, namespace.Spec.Finalizers)
	}
	return nil
}

// showContent shows what is in the namespace and checks that it is what it should be.
func (d *demo) showContent(ctx context.Context, wanted []string) error {
	output, err := d.show(ctx, d.admin, contentCommand...)
	if err != nil {
		return err
	}
	if found := namesIn(output); !slices.Equal(found, slices.Sorted(slices.Values(wanted))) {
		return fmt.Errorf("namespace %q should hold %v, it holds %v", endingName, wanted, found)
	}
	return nil
}

// untilOnlyHeld waits until the conditions say that nothing but the StatefulSet keeps the
// rest from being deleted.
func (d *demo) untilOnlyHeld(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		namespace, err := d.endingNamespace(ctx)
		if err != nil {
			return false, err
		}
		condition := nscondition.Find(namespace, corev1.NamespaceDeletionContentFailure)
		return condition != nil && strings.HasSuffix(condition.Message, waitsForHeld), nil
	})
	if err != nil {
		return fmt.Errorf("namespace %q does not say what its content waits for: %w", endingName, err)
	}
	return nil
}

// namesIn returns the sorted names that kubectl has printed.
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

func (d *demo) endingNamespace(ctx context.Context) (*corev1.Namespace, error) {
	client, err := kubernetes.NewForConfig(d.admin.config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return client.CoreV1().Namespaces().Get(ctx, endingName, metav1.GetOptions{})
}
