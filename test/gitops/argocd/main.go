// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command argocd compares a manifest with a cluster and syncs it with the engine of Argo CD, as its application
// controller does for an Application without ignoreDifferences. It syncs once for each line of the standard input, and
// prints a line for each: the objects that were OutOfSync as JSON. Argo CD syncs only Applications that are OutOfSync
// or have a new revision; this program always syncs.
//
// It follows CompareAppState and SyncAppState in github.com/argoproj/argo-cd, controller/state.go and sync.go.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/argoproj/gitops-engine/pkg/cache"
	"github.com/argoproj/gitops-engine/pkg/diff"
	"github.com/argoproj/gitops-engine/pkg/sync"
	"github.com/argoproj/gitops-engine/pkg/sync/common"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	application = "nslifecycle"
	// tracking is the annotation by which Argo CD recognizes the objects of an Application.
	tracking = "argocd.argoproj.io/tracking-id"
	manager  = "argocd-controller"
	// timeout limits a sync. The Deployments of the manifest need not become healthy.
	timeout = 2 * time.Minute
)

// engine syncs the manifest of one Application.
type engine struct {
	config    *rest.Config
	kubectl   kube.Kubectl
	cache     cache.ClusterCache
	namespace string
	manifest  []byte
	// serverSideApply and serverSideDiff are the sync option and the compare option of the same name.
	serverSideApply, serverSideDiff bool
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the cluster")
	manifest := flag.String("manifest", "", "file with the objects")
	namespace := flag.String("namespace", "nslifecycle-system", "namespace of the destination")
	serverSideApply := flag.Bool("server-side-apply", false, "sync option ServerSideApply=true")
	serverSideDiff := flag.Bool("server-side-diff", false, "compare option ServerSideDiff=true")
	flag.Parse()
	e := engine{namespace: *namespace, serverSideApply: *serverSideApply, serverSideDiff: *serverSideDiff}
	if err := e.run(*kubeconfig, *manifest); err != nil {
		log.Fatal(err)
	}
}

func (e *engine) run(kubeconfig, manifest string) error {
	var err error
	if e.manifest, err = os.ReadFile(manifest); err != nil {
		return err
	}
	if e.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return err
	}
	e.config.QPS, e.config.Burst = 50, 100
	e.kubectl = &kube.KubectlCmd{Log: logr.Discard(), Tracer: tracing.NopTracer{}}
	e.cache = cache.NewClusterCache(e.config, cache.SetLogr(logr.Discard()), cache.SetKubectl(e.kubectl),
		cache.SetPopulateResourceInfoHandler(func(object *unstructured.Unstructured, _ bool) (any, bool) {
			return nil, object.GetAnnotations()[tracking] == trackingID(object)
		}))
	if err := e.cache.EnsureSynced(); err != nil {
		return fmt.Errorf("failed to fill the cache: %w", err)
	}
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		outOfSync, err := e.sync()
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(outOfSync); err != nil {
			return err
		}
	}
	return nil
}

// sync applies all objects, and returns those that differed before.
func (e *engine) sync() ([]string, error) {
	targets, err := kube.SplitYAML(e.manifest)
	if err != nil {
		return nil, fmt.Errorf("failed to read the manifest: %w", err)
	}
	for _, target := range targets {
		// kustomize adds the namespace to cluster-scoped objects, too.
		if namespaced, err := e.cache.IsNamespaced(target.GroupVersionKind().GroupKind()); err == nil && !namespaced {
			target.SetNamespace("")
		}
		annotations := target.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[tracking] = trackingID(target)
		target.SetAnnotations(annotations)
	}
	live, err := e.cache.GetManagedLiveObjs(targets, func(resource *cache.Resource) bool {
		return resource.Resource != nil && resource.Resource.GetAnnotations()[tracking] == trackingID(resource.Resource)
	})
	if err != nil {
		return nil, fmt.Errorf("failed to read the live objects: %w", err)
	}
	state := sync.Reconcile(targets, live, e.namespace, e.cache)
	outOfSync, err := e.compare(state)
	if err != nil {
		return nil, fmt.Errorf("failed to compare: %w", err)
	}
	return outOfSync, e.apply(state)
}

// compare returns the objects that differ, are missing or are not in the manifest.
func (e *engine) compare(state sync.ReconciliationResult) ([]string, error) {
	options := []diff.Option{
		diff.WithNormalizer(withoutStatus{}), diff.WithGVKParser(e.cache.GetGVKParser()), diff.WithManager(manager),
		diff.WithStructuredMergeDiff(e.serverSideApply), diff.WithServerSideDiff(e.serverSideDiff),
	}
	if e.serverSideDiff {
		applier, cleanup, err := kube.ManageServerSideDiffDryRuns(e.config, e.cache.GetOpenAPISchema(), tracing.NopTracer{},
			logr.Discard(), func(string) (kube.CleanupFunc, error) { return func() {}, nil })
		if err != nil {
			return nil, err
		}
		defer cleanup()
		options = append(options, diff.WithServerSideDryRunner(diff.NewK8sServerSideDryRunner(applier)))
	}
	results, err := diff.DiffArray(state.Target, state.Live, options...)
	if err != nil {
		return nil, err
	}
	outOfSync := []string{}
	for i, result := range results.Diffs {
		switch target, live := state.Target[i], state.Live[i]; {
		case target == nil:
			outOfSync = append(outOfSync, "not in the manifest: "+trackingID(live))
		case live == nil:
			outOfSync = append(outOfSync, "missing: "+trackingID(target))
		case result.Modified:
			outOfSync = append(outOfSync, fmt.Sprintf("%s: %s, expected %s", trackingID(target), result.NormalizedLive,
				result.PredictedLive))
		}
	}
	return outOfSync, nil
}

// apply applies the objects, in the order of Argo CD.
func (e *engine) apply(state sync.ReconciliationResult) error {
	syncing, cleanup, err := sync.NewSyncContext("revision", state, e.config, e.config, e.kubectl, e.namespace,
		e.cache.GetOpenAPISchema(), sync.WithLogr(logr.Discard()), sync.WithOperationSettings(false, true, false, false),
		sync.WithManifestValidation(true), sync.WithServerSideApply(e.serverSideApply),
		sync.WithServerSideApplyManager(manager),
		sync.WithClientSideApplyMigration(true, common.DefaultClientSideApplyMigrationManager))
	if err != nil {
		return fmt.Errorf("failed to prepare the sync: %w", err)
	}
	defer cleanup()
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		syncing.Sync()
		phase, message, results := syncing.GetState()
		if phase == common.OperationSucceeded {
			return nil
		}
		if phase.Completed() {
			for _, result := range results {
				if result.Status == common.ResultCodeSyncFailed {
					message += fmt.Sprintf("; %s: %s", result.ResourceKey.String(), result.Message)
				}
			}
			return fmt.Errorf("the sync failed: %s", message)
		}
	}
	return errors.New("the sync timed out")
}

// trackingID returns the annotation that Argo CD writes to an object.
func trackingID(object *unstructured.Unstructured) string {
	kind := object.GroupVersionKind()
	return fmt.Sprintf("%s:%s/%s:%s/%s", application, kind.Group, kind.Kind, object.GetNamespace(), object.GetName())
}

// withoutStatus ignores the status of all objects, the default of ignoreResourceStatusField.
type withoutStatus struct{}

func (withoutStatus) Normalize(object *unstructured.Unstructured) error {
	unstructured.RemoveNestedField(object.Object, "status")
	return nil
}
