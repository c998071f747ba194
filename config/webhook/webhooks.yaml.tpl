# The webhooks delay writes, and then ask the client to send them again (internal/hold/doc.go). The second one
# does the same as the first, which rejects all writes except in audit mode: the API server calls it only if the first
# call failed, for example because a replica of the manager crashed. In audit mode, it records the writes.
#
# The next two webhooks do the same for the waitingSubjects of configurations, which the first two do not select. The
# operator adds their match conditions.
#
# The operator adds the rules of all four, and removes them while the last webhook, which the same server serves, does
# not answer in time, for example behind a firewall: each write would wait for timeoutSeconds. Without rules, a webhook
# selects no request. They are not in this manifest, so that applying it again does not change them.
#
# failurePolicy Ignore: without the webhooks, the gate policy rejects the writes.
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: hold
  labels:
    app.kubernetes.io/name: nslifecycle
    app.kubernetes.io/managed-by: kustomize
  annotations:
    admissions.enforcer/disabled: "true"
webhooks:
- name: hold.nslifecycle.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  # Longer than the manager's --hold-duration.
  timeoutSeconds: 15
  clientConfig:
    service:
      name: webhook
      namespace: system
      path: /hold
  namespaceSelector: &initializing
    matchExpressions:
    - key: nslifecycle.dev/initializing
      operator: Exists
  # Evaluated in the API server, so the writes that the gate admits do not reach the webhooks. A controller
  # sends its Events one after another, so a held Event would delay those about other namespaces.
  matchConditions: &waiting
  - name: not-an-event-of-a-controller
    expression: "request.resource.resource != 'events' || !request.userInfo.username.startsWith('system:')"
  - name: not-an-initializer
    expression: >-
      !({{include "mayProvision" "namespace" "request.namespace"}})
- name: hold-fallback.nslifecycle.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  timeoutSeconds: 15
  clientConfig:
    service:
      name: webhook
      namespace: system
      path: /hold
  namespaceSelector: *initializing
  matchConditions: *waiting
- name: hold-waiting-subjects.nslifecycle.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  timeoutSeconds: 15
  clientConfig:
    service:
      name: webhook
      namespace: system
      path: /hold
  namespaceSelector: *initializing
- name: hold-fallback-waiting-subjects.nslifecycle.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  timeoutSeconds: 15
  clientConfig:
    service:
      name: webhook
      namespace: system
      path: /hold
  namespaceSelector: *initializing
# Selects only dry runs of the operator.
- name: probe.nslifecycle.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 2
  clientConfig:
    service:
      name: webhook
      namespace: system
      path: /probe
  rules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [namespaces]
    scope: Cluster
  matchConditions:
  - name: probe
    expression: >-
      request.?dryRun.orValue(false) && object.metadata.?generateName.orValue('') == 'nslifecycle-webhook-probe-'
