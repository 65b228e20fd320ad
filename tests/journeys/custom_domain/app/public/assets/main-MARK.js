const edition = 'MARK'
const status = document.querySelector('[role=status]')
document.querySelector('#edition').textContent = `Edition ${edition}`

document.querySelector('form').addEventListener('submit', async (event) => {
  event.preventDefault()
  const order = Object.fromEntries(new FormData(event.target))
  order.quantity = Number(order.quantity)
  const answer = await fetch('/api/orders', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(order),
  })
  const told = await answer.json()
  status.textContent = told.success ? told.data.thanks : told.error.details[0].pointer
})

document.querySelector('#help').addEventListener('click', async () => {
  const { help } = await import('./help-MARK.js')
  status.textContent = help
})
