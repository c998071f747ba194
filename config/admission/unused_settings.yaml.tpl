# Warns a user who sets a label or an annotation that has no effect: a parameter that no template of the namespace has (in a
# request that creates a namespace with a template, the templates policy denies it), or deletion protection while the API
# server does not enforce the policy in config/protection. The operator records in the status of the set whether it does;
# without this record, the policy does not warn.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: unused-settings
  labels:
    nslifecycle.dev/policy: unused-settings
spec:
  # A warning must not prevent a request.
  failurePolicy: Ignore
  paramKind:
    apiVersion: internal.nslifecycle.dev/v1alpha1
    kind: NamespaceInitializerSet
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: ["v1"]
      operations: ["CREATE", "UPDATE"]
      resources: ["namespaces"]
      scope: "*"
  # One cheap condition: the API server evaluates all conditions.
  matchConditions:
  - name: has-new-settings
    expression: >-
      object.metadata.?annotations.orValue({}).exists(k, k.startsWith('parameter.nslifecycle.dev/') &&
        (oldObject == null || !(k in oldObject.metadata.?annotations.orValue({})))) ||
      object.metadata.?labels[?'nslifecycle.dev/deletion-protection'].hasValue() &&
        (oldObject == null || !oldObject.metadata.?labels[?'nslifecycle.dev/deletion-protection'].hasValue())
  variables:
  - name: labels
    expression: "object.metadata.?labels.orValue({})"
  - name: added
    expression: >-
      object.metadata.?annotations.orValue({}).filter(k, k.startsWith('parameter.nslifecycle.dev/') &&
        (oldObject == null || !(k in oldObject.metadata.?annotations.orValue({}))))
  - name: declared
    expression: >-
      params.?templates.orValue([]).filter(t,
        variables.labels[?'nslifecycle.dev/template'].orValue('') == t.name || {{include "selects" "selector" "t.namespaceSelector" "labels" "variables.labels" "isUnnamed" ""}})
      .map(t, t.?parameters.orValue([]).filter(p, !has(p.labelKey)).map(p, 'parameter.nslifecycle.dev/' + p.name))
  - name: unused
    expression: >-
      {{include "isExempt"}} || variables.added.size() > 128 ? [] :
      variables.added.filter(k, !variables.declared.exists(names, k in names))
  validations:
  - expression: "variables.unused.size() == 0"
    messageExpression: >-
      'annotation ' + variables.unused[0] + ': no template that selects the namespace has this parameter'
  - expression: >-
      !(params.?status.?conditions.orValue([]).exists(c,
          c.type == 'DeletionProtectionEnforced' && c.status == 'False') &&
        variables.labels[?'nslifecycle.dev/deletion-protection'].hasValue() &&
        (oldObject == null || !oldObject.metadata.?labels[?'nslifecycle.dev/deletion-protection'].hasValue()))
    message: >-
      label nslifecycle.dev/deletion-protection does not protect the namespace: the policy "protection" is not enforced in
      this cluster, so users can delete the namespace
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: unused-settings
  labels:
    nslifecycle.dev/policy: unused-settings
spec:
  policyName: unused-settings
  validationActions: ["Warn"]
  # Without a set, the operator has not started.
  paramRef:
    name: effective
    parameterNotFoundAction: Allow
