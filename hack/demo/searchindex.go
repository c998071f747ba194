// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/examples/search-index/controller"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

const (
	searchName = "demo-search"
	// The manifests of the example, relative to the root of the repository. No Pods run here,
	// so the Deployments are omitted.
	searchManifests     = "examples/search-index/manifests"
	searchConfiguration = searchManifests + "/configuration.yaml"
	searchNamespace     = "search-index"
	searchAccount       = "controller"
)

const searchCondition = corev1.NamespaceConditionType(
	controller.InitializerName + v1alpha1.ConditionInitializedSuffix)

var (
	searchConditionCommand = []string{
		"get", "namespace", searchName,
		`--output=jsonpath={.status.conditions[?(@.type=="` + string(searchCondition) + `")].message}{"\n"}`,
	}
	searchFinalizersCommand = []string{
		"get", "namespace", searchName, `--output=jsonpath={.spec.finalizers}{"\n"}`,
	}
)

// searchIndex holds the running example search-index.
type searchIndex struct {
	binary, address, url string
	server               *controlplane.Process
}

// startSearchIndex builds the two programs of the example and runs them: the server, and the
// controller with the permissions of its manifests.
func (d *demo) startSearchIndex(ctx context.Context) error {
	d.out.say("Starting the index server and the controller of examples/search-index")
	server := filepath.Join(d.controlPlane.Dir, "index-server")
	binary := filepath.Join(d.controlPlane.Dir, "search-controller")
	if err := errors.Join(
		controlplane.Build(ctx, controlplane.Root(), controlplane.IndexServerProgram, server),
		controlplane.Build(ctx, controlplane.Root(), controlplane.SearchControllerProgram, binary),
	); err != nil {
		return err
	}
	// After the builds, since another program could take the address in the meantime.
	address, err := controlplane.FreeAddress()
	if err != nil {
		return err
	}
	d.search = &searchIndex{binary: server, address: address, url: "http://" + address}
	if err := d.startIndexServer(); err != nil {
		return err
	}
	d.stops = append(d.stops, func() error {
		if d.search.server == nil {
			return nil
		}
		return d.search.server.Stop()
	})

	if _, err := d.run(ctx, d.admin, "apply", "-f", searchManifests+"/namespace.yaml",
		"-f", searchManifests+"/rbac.yaml"); err != nil {
		return err
	}
	config, err := d.controlPlane.ServiceAccountConfig(ctx, searchNamespace, searchAccount)
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(d.controlPlane.Dir, "search-controller.kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
		return err
	}
	process, err := controlplane.StartProcess(d.output, binary, "--kubeconfig="+kubeconfig, "--index-server="+d.search.url)
	if err != nil {
		return err
	}
	d.stops = append(d.stops, process.Stop)
	return nil
}

func (d *demo) startIndexServer() error {
	process, err := controlplane.StartProcess(d.output, d.search.binary,
		"--listen-address="+d.search.address, "--data-dir="+filepath.Join(d.controlPlane.Dir, "indices"))
	if err != nil {
		return err
	}
	d.search.server = process
	return nil
}

func (d *demo) stopIndexServer() error {
	process := d.search.server
	d.search.server = nil
	return process.Stop()
}

// registerAll registers all running initializers.
func (d *demo) registerAll(
	ctx context.Context, run func(context.Context, actor, ...string) (string, error),
) error {
	if err := d.register(ctx, run); err != nil || d.search == nil {
		return err
	}
	return d.registerSearchIndex(ctx, run)
}

func (d *demo) registerSearchIndex(
	ctx context.Context, run func(context.Context, actor, ...string) (string, error),
) error {
	if _, err := run(ctx, d.admin, "apply", "-f", searchConfiguration); err != nil {
		return err
	}
	_, err := run(ctx, d.admin, "wait", "--for=condition=Ready", "--timeout=60s", "-f", searchConfiguration)
	return err
}

// searchTour shows the index of one namespace from its creation to its deletion.
func (d *demo) searchTour(ctx context.Context) error {
	return inTurn(ctx, d.showSearchRegistration, d.showServiceDown, d.showIndex, d.showIndexDeleted)
}

func (d *demo) showSearchRegistration(ctx context.Context) error {
	d.out.heading("A search service")
	d.out.say("Each namespace gets an index for its logs in a service outside the cluster. An initializer\n" +
		"creates the index. When the namespace is deleted, an agent with its own namespace finalizer\n" +
		"deletes the index.")
	return d.registerSearchIndex(ctx, d.show)
}

// showServiceDown shows that a namespace waits for the service and that a condition reports the
// cause.
func (d *demo) showServiceDown(ctx context.Context) error {
	d.out.heading("The service is down")
	d.out.say("The index server is stopped, and the user creates a namespace. The namespace waits, and\n" +
		"a condition reports the cause.")
	if err := d.stopIndexServer(); err != nil {
		return err
	}
	if _, err := d.show(ctx, d.user, "create", "namespace", searchName); err != nil {
		return err
	}
	if err := d.untilSearchCondition(ctx, corev1.ConditionFalse, "is down"); err != nil {
		return err
	}
	output, err := d.show(ctx, d.user, searchConditionCommand...)
	if err != nil {
		return err
	}
	if !strings.Contains(output, d.search.url) {
		return fmt.Errorf("namespace %q does not report that it waits for %s", searchName, d.search.url)
	}
	return nil
}

// showIndex shows that the namespace is initialized after its index was created, and shows the index.
func (d *demo) showIndex(ctx context.Context) error {
	d.out.heading("The service is started again")
	d.out.say("The index server is started, the index is created, and then the namespace is initialized.")
	if err := d.startIndexServer(); err != nil {
		return err
	}
	if _, err := d.show(ctx, d.user, "wait", "--for=condition=Ready", "namespace/"+searchName); err != nil {
		return err
	}
	namespace, err := d.getNamespace(ctx, searchName)
	if err != nil {
		return err
	}
	index := controller.IndexName(namespace)
	if err := d.untilSearchCondition(ctx, corev1.ConditionTrue, index+" is ready"); err != nil {
		return err
	}
	if _, err := d.show(ctx, d.user, searchConditionCommand...); err != nil {
		return err
	}
	d.out.say("\nThe first document names the user who created the namespace:")
	path := "/indices/" + index + "/_search?q=" + url.QueryEscape("ready")
	// The document is written shortly after the namespace is initialized.
	if err := d.poll(ctx, func(ctx context.Context) (bool, error) {
		_, body, err := d.fetch(ctx, path)
		return strings.Contains(body, userName), err
	}); err != nil {
		return fmt.Errorf("index %s contains no document: %w", index, err)
	}
	status, body, err := d.fetch(ctx, path)
	d.out.command(d.admin.name, "curl "+shellLine(d.search.url+path))
	d.out.output(body)
	if err != nil || status != http.StatusOK || !strings.Contains(body, "namespace "+searchName+" is ready") {
		return errors.Join(err, fmt.Errorf("the search of index %s returned an unexpected result", index))
	}
	return nil
}

// showIndexDeleted shows that the index is deleted with the namespace.
func (d *demo) showIndexDeleted(ctx context.Context) error {
	d.out.heading("The namespace and its index are deleted")
	d.out.say("The agent removes its namespace finalizer after the service has confirmed the deletion.")
	output, err := d.show(ctx, d.admin, searchFinalizersCommand...)
	if err != nil {
		return err
	}
	if !strings.Contains(output, string(controller.Finalizer)) {
		return fmt.Errorf("namespace %q does not have the namespace finalizer %s", searchName, controller.Finalizer)
	}
	namespace, err := d.getNamespace(ctx, searchName)
	if err != nil {
		return err
	}
	if _, err := d.show(ctx, d.admin, "delete", "namespace", searchName); err != nil {
		return err
	}
	path := "/indices/" + controller.IndexName(namespace)
	status, body, err := d.fetch(ctx, path)
	d.out.command(d.admin.name, "curl "+shellLine(d.search.url+path))
	d.out.output(body)
	if err != nil || status != http.StatusNotFound {
		return errors.Join(err, fmt.Errorf("the index of namespace %q still exists", searchName))
	}
	return nil
}

// untilSearchCondition waits until the condition for the index has the given status and its message
// contains text.
func (d *demo) untilSearchCondition(ctx context.Context, status corev1.ConditionStatus, text string) error {
	err := d.poll(ctx, func(ctx context.Context) (bool, error) {
		namespace, err := d.getNamespace(ctx, searchName)
		if err != nil {
			return false, err
		}
		condition := nsobject.FindCondition(namespace, searchCondition)
		return condition != nil && condition.Status == status && strings.Contains(condition.Message, text), nil
	})
	if err != nil {
		return fmt.Errorf("the condition of namespace %q does not contain %q: %w", searchName, text, err)
	}
	return nil
}

func (d *demo) poll(ctx context.Context, condition wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextCancel(ctx, pollInterval, true, condition)
}

// fetch sends the same request as the printed curl command.
func (d *demo) fetch(ctx context.Context, path string) (status int, body string, err error) {
	const timeout = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.search.url+path, nil)
	if err != nil {
		return 0, "", fmt.Errorf("failed to create a request: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", fmt.Errorf("failed to send a request to the index server: %w", err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}
